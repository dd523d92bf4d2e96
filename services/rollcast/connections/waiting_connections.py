"""Connections of an HTTP server that wait for their client: closed after a deadline, or earlier to
make room.

    accepted --> waiting --(the whole request is there)--> served --(answered)--> waiting
                    |
                    +-- longer than REQUEST_SECONDS, --> closed
                        or longer than all others when the places are taken

A client that sends no request, sends it byte by byte, or does not read its answer takes a place,
but does not delay other clients.
"""

import asyncio
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_SECONDS = 20.0
"""How long a connection may wait for its client: for the head of a request, for its body, or until
a part of the answer is read."""

NO_LINGERING = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: closed immediately, without waiting until the client has read the rest."""


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    waiting_since: float | None
    """Monotonic seconds; None = its request is being served."""


class WaitingConnections:
    """ASGI middleware that knows every connection of its server, by the client's address.

    For one event loop.
    """

    def __init__(self, application: ASGIApp, max_connections: int) -> None:
        self._application = application
        self._max_connections = max_connections
        self._open: dict[tuple[str, int], _Connection] = {}

    def add_connection(self, connection: socket.socket, address: Any) -> None:
        """Give a new connection a place; if all are taken, the connection that has waited longest
        is closed.
        """
        self._forget_closed()
        waiting = [
            key for key, connection in self._open.items() if connection.waiting_since is not None
        ]
        self._open[address[:2]] = _Connection(connection, time.monotonic())
        if len(self._open) > self._max_connections:
            self._close(min(waiting, key=self._waiting_since, default=address[:2]))

    async def close_the_silent(self) -> None:
        """Close each connection that waits for too long. Runs until it is cancelled."""
        while True:
            self._forget_closed()
            latest = time.monotonic() - REQUEST_SECONDS
            for key in [key for key in self._open if self._waiting_since(key) < latest]:
                self._close(key)
            # Interval of looking for connections that waited too long
            await asyncio.sleep(1.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._open.get(tuple(scope.get("client") or ()))
        if connection is None or scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        since = time.monotonic()
        is_request_complete = False

        async def receive_in_time() -> Message:
            nonlocal is_request_complete
            connection.waiting_since = None if is_request_complete else since
            message = await receive()
            connection.waiting_since = None
            is_request_complete = not message.get("more_body", False)
            return message

        async def send_in_time(message: Message) -> None:
            connection.waiting_since = time.monotonic()
            await send(message)
            connection.waiting_since = None

        connection.waiting_since = None
        try:
            # The client has gone, or the server stops and waits for no request longer: neither is
            # an error.
            with suppress(ClientDisconnect, asyncio.CancelledError):
                await self._application(scope, receive_in_time, send_in_time)
        finally:
            connection.waiting_since = time.monotonic()

    def _waiting_since(self, key: tuple[str, int]) -> float:
        since = self._open[key].waiting_since
        return time.monotonic() if since is None else since

    def _forget_closed(self) -> None:
        for key in [
            key for key, connection in self._open.items() if connection.socket.fileno() < 0
        ]:
            del self._open[key]

    def _close(self, key: tuple[str, int]) -> None:
        """The event loop sees the end of the stream and closes the socket; unsent bytes are
        discarded.
        """
        connection = self._open.pop(key).socket
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
            connection.shutdown(socket.SHUT_RDWR)


class WatchedListener(socket.socket):
    """A listening socket that reports each connection to `connections`."""

    def __init__(self, listener: socket.socket, connections: WaitingConnections) -> None:
        """Takes the place of `listener`, which is closed."""
        super().__init__(fileno=listener.detach())
        self._connections = connections
        self._consecutive_accepts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            # Connections accepted before the event loop gets its turn, in which it closes those
            # that were given up
            if self._consecutive_accepts == 64:
                raise BlockingIOError
            connection, address = super().accept()
        except BlockingIOError:
            self._consecutive_accepts = 0
            raise
        self._consecutive_accepts += 1
        self._connections.add_connection(connection, address)
        return connection, address
