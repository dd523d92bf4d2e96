"""The current number of generators, for the external scaler's threads, /metrics and /readyz."""

import threading


class DecisionBoard:
    """The loop writes, all other threads read. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._target: int | None = None
        self._sequence = 0
        self._closed = False

    @property
    def target(self) -> int | None:
        """None = not known yet, which must not be read as a small number. 0 = the run has ended."""
        with self._changed:
            return self._target

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def show(self, target: int) -> None:
        with self._changed:
            if target != self._target:
                self._target = target
                self._sequence += 1
                self._changed.notify_all()

    def wait_newer(self, sequence: int, seconds: float) -> int:
        """Wait at most `seconds` for a change after `sequence`; returns the sequence number of the
        last change.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._sequence > sequence or self._closed, timeout=seconds
            )
            return self._sequence

    def close(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
