"""Broadcasts and an update's collectives on the same GPUs: one of the two at a time.

    control thread   with broadcasting() as may_begin: publishes, brings joiners to the current version
    main thread      with held(..): the update; what is due goes first, what comes up meanwhile waits for its end

The control thread never waits here, since it also looks for faults.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Sharing:
    def __init__(self, changed: threading.Condition) -> None:
        """`changed`: guards what `held` asks for, and is notified when that changes."""
        self._changed = changed
        self._is_broadcasting = False
        self._is_held = False

    @contextmanager
    def broadcasting(self) -> Iterator[bool]:
        """Whether groups may be opened and sent to now; asked again in the next turn where they may not."""
        with self._changed:
            may_begin = self._is_broadcasting = not self._is_held
        try:
            yield may_begin
        finally:
            if may_begin:
                with self._changed:
                    self._is_broadcasting = False
                    self._changed.notify_all()

    @contextmanager
    def held(self, is_due: Callable[[], bool], timeout_seconds: float) -> Iterator[None]:
        """Keep broadcasts away, once none is under way or due; after `timeout_seconds` no further one is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_broadcasting and not is_due(), timeout_seconds)
            self._is_held = True
        try:
            yield
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()
