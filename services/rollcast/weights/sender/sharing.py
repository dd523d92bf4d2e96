"""Broadcasts and the collectives of an update on the same GPUs: never both at the same time.

    control thread   with broadcasting() as may_begin: publishes, brings joiners to the current
                     version
    main thread      with held(..): the update. Broadcasts that are due go first, later ones wait
                     for its end

The control thread never waits here, because it also looks for faults.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Sharing:
    def __init__(self, changed: threading.Condition) -> None:
        """`changed`: guards the state that `is_due` reads, and is notified when it changes."""
        self._changed = changed
        self._is_broadcasting = False
        self.is_held = False
        """Whether an update keeps broadcasts away, or waits for the end of one."""

    @contextmanager
    def broadcasting(self) -> Iterator[bool]:
        """Yields whether groups may be opened and sent to now; if not,
        the caller asks again later.
        """
        with self._changed:
            may_begin = not self.is_held
            self._is_broadcasting |= may_begin
        try:
            yield may_begin
        finally:
            if may_begin:
                with self._changed:
                    self._is_broadcasting = False
                    self._changed.notify_all()

    @contextmanager
    def pause(self, is_due: Callable[[], bool], timeout_seconds: float) -> Iterator[None]:
        """Keep broadcasts away.

        Waits for due ones at most `timeout_seconds`, and for a running one until it ends.
        """
        with self._changed:
            # After the timeout no due broadcast is waited for: generators that do not answer must
            # not stop training.
            self._changed.wait_for(
                lambda: not self._is_broadcasting and not is_due(), timeout_seconds
            )
            # Nothing new begins from here on.
            self.is_held = True
        try:
            with self._changed:
                # A running one has deadlines of its own. To drop its groups would not be quicker:
                # they end by the same deadlines, and the version would have to be sent again.
                self._changed.wait_for(lambda: not self._is_broadcasting)
            yield
        finally:
            with self._changed:
                self.is_held = False
                self._changed.notify_all()
