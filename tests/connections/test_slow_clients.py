"""Clients that open connections and send no whole request, over real sockets, while others want to
be answered.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rollcast.config.connections import TLS, Http
from rollcast.connections.http import MAX_CONNECTIONS, HttpServer, client, listen
from testkit.connections.certificates import make_certificates

CONNECTIONS = 1_200
REQUEST_SECONDS = 2.0
"""What the server's own deadline is set to."""
CLOSED_WITHIN_SECONDS = 60.0
"""Far above that, on a machine that is busy."""
BEGINNINGS = {
    "nothing": b"",
    "half a line": b"GET /heal",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
    "half a body": b"POST /sent HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
    "half a chunk": (
        b"POST /sent HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf"
    ),
    "no reading": b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n",
}


async def healthy(_: Request) -> Response:
    return PlainTextResponse("ok")


async def sent(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def slow(_: Request) -> Response:
    await asyncio.sleep(3 * REQUEST_SECONDS)
    return PlainTextResponse("late")


async def much(_: Request) -> Response:
    return PlainTextResponse(b"x" * (64 << 20))


@contextmanager
def serving(tls: TLS | None = None) -> Iterator[int]:
    routes = [
        Route("/healthz", healthy),
        Route("/sent", sent, methods=["POST"]),
        Route("/slow", slow),
        Route("/much", much),
    ]
    server = HttpServer(
        Starlette(routes=routes), listen("127.0.0.1", 0, setting="port"), Http(tls=tls)
    )
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@contextmanager
def opened(port: int, beginning: bytes, count: int) -> Iterator[list[socket.socket]]:
    connections = []
    try:
        for _ in range(count):
            connections.append(
                socket.create_connection(("127.0.0.1", port), timeout=CLOSED_WITHIN_SECONDS)
            )
            connections[-1].sendall(beginning)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def wait_until_closed(connections: list[socket.socket], drip: bytes = b"") -> None:
    """Until the server has closed all; `drip` is sent on each meanwhile, twice a second, byte by
    byte.
    """
    deadline = time.monotonic() + CLOSED_WITHIN_SECONDS
    poll = select.poll()
    left = {connection.fileno(): connection for connection in connections}
    for number in left:
        poll.register(number, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    sent_at = 0.0
    while left:
        assert time.monotonic() < deadline, f"{len(left)} connections stay open"
        for number, _ in poll.poll(200):
            poll.unregister(number)
            del left[number]
        if drip and time.monotonic() - sent_at > 0.5:
            sent_at = time.monotonic()
            for connection in left.values():
                try:
                    connection.send(drip, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except OSError:
                    continue


@pytest.fixture(autouse=True)
def _short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcast.connections.waiting_connections.REQUEST_SECONDS", REQUEST_SECONDS)


@pytest.mark.parametrize("kind", ["nothing", "half a head", "half a body"])
def test_many_half_open_connections_leave_the_probes_their_answer(kind: str) -> None:
    with serving() as port, opened(port, BEGINNINGS[kind], CONNECTIONS) as connections:
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
        wait_until_closed(connections)
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("kind", "drip"), [*((kind, b"") for kind in BEGINNINGS), ("half a line", b"t")]
)
def test_a_connection_that_waits_for_its_client_is_closed(kind: str, drip: bytes) -> None:
    with serving() as port, opened(port, BEGINNINGS[kind], 3) as connections:
        wait_until_closed(connections, drip)


def test_half_a_handshake_is_no_better(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    with serving(tls) as port, opened(port, b"\x16\x03\x01", CONNECTIONS) as connections:
        with client(tls=tls, timeout_seconds=60.0) as caller:
            assert caller.get(f"https://127.0.0.1:{port}/healthz").status_code == 200
        wait_until_closed(connections)


def test_a_request_that_is_served_is_not_closed_for_those_that_wait() -> None:
    with serving() as port:
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                httpx.get(f"http://127.0.0.1:{port}/slow", timeout=60).text
            )
        )
        asking.start()
        time.sleep(0.5)
        with opened(port, b"", MAX_CONNECTIONS + 100):
            asking.join(60)
        assert answers == ["late"]


def test_a_request_that_a_proxy_of_this_machine_passes_on_is_not_closed() -> None:
    """The proxy's header names another client than the connection's."""
    with serving() as port:
        answer = httpx.get(
            f"http://127.0.0.1:{port}/slow", headers={"X-Forwarded-For": "192.0.2.7"}, timeout=60
        )
        assert answer.text == "late"


def test_a_kept_connection_is_served_again_and_again() -> None:
    with serving() as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as caller:
        began = time.monotonic()
        while time.monotonic() - began < 2 * REQUEST_SECONDS:
            assert caller.post("/sent", content=b"x" * 300_000).text == "x" * 300_000
            time.sleep(0.1)
