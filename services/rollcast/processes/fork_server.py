"""A process with its imports done, which forks for each connection that it is sent.

    control readable     -> `_take` a connection that came; closed: the end
    SIGCHLD              -> `_reap` the forks that have ended
    anything watched     -> its handler

One thread and one poll. The client's end: `server_process`.
"""

import contextlib
import gc
import json
import select
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from rollcast.processes.descriptors import allow_server_files

Prepared = TypeVar("Prepared")


def prepare_to_fork(
    control: socket.socket,
    prepare: Callable[[], Prepared],
    explain: Callable[[BaseException], str],
) -> Prepared | None:
    """The result of `prepare`, for forks to share; None = it raised, and the client hears why."""
    allow_server_files()
    try:
        prepared = prepare()
    except Exception as error:
        reason = explain(error)
    except SystemExit as error:
        reason = f"its module ends the process when it is imported ({error!r})"
    else:
        gc.collect()
        # Forks share this memory until it is written to, and a garbage collection writes to every
        # object.
        gc.freeze()
        return prepared
    control.send(json.dumps({"failed": reason}).encode())
    return None


class BaseForkServer(ABC):
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._is_open = True
        self._poll = select.epoll()
        self._watched: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self._forgotten: list[socket.socket] = []
        """Closed after the events at hand: a new descriptor of the same number must not get an old
        one's events."""
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        # Only a signal with a handler of Python wakes the poll.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the client closes its end of `control`."""
        self._watch(self._control, select.EPOLLIN, self._take)
        self._watch(self._woken, select.EPOLLIN, self._wake_up)
        while self._is_open:
            for descriptor, _ in self._poll.poll(self._longest_wait()):
                if watched := self._watched.get(descriptor):
                    watched[1]()
            self._look()
            while self._forgotten:
                self._forgotten.pop().close()
        self._end_all()

    @abstractmethod
    def _take(self) -> None:
        """Read `control`, and clear `_is_open` if the client has closed it."""

    @abstractmethod
    def _reap(self) -> None:
        """Collect the forks that have ended."""

    @abstractmethod
    def _end_all(self) -> None:
        """Nothing that was forked lives on after this."""

    def _longest_wait(self) -> float | None:
        """Seconds until `_look` is called; None = until something happens."""
        return None

    def _look(self) -> None:  # noqa: B027  # not every server has deadlines
        """Called after each wait."""

    def _watch(self, end: socket.socket, events: int, handler: Callable[[], None]) -> None:
        self._poll.register(end, events)
        self._watched[end.fileno()] = (end, handler)

    def _forget(self, end: socket.socket) -> None:
        """Close a socket, which may be watched no more."""
        self._watch_no_more(end)
        self._watched.pop(end.fileno(), None)
        self._forgotten.append(end)

    def _watch_no_more(self, end: socket.socket) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._poll.unregister(end)

    def _let_go(self) -> None:
        """Close this server's own files in a fork, so that others see their ends; those of a user
        stay open.
        """
        for end in [*(end for end, _ in self._watched.values()), *self._forgotten, self._wake]:
            end.close()
        self._poll.close()
        self._watched.clear()  # they hold this server, which must not stay in a fork's memory

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        self._reap()


def forget_signals() -> None:
    """Give up the server's handling of signals, in a fork."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
