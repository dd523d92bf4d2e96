"""HTTP servers and clients from configuration: probes and metrics of every service, token, TLS,
deadlines.
"""

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import SecretStr

from rollcast.config.connections import TLS, Http
from rollcast.config.errors import UserError
from rollcast.connections.certificates import check_server, verifying_context
from rollcast.connections.waiting_connections import WaitingConnections, WatchedListener

if TYPE_CHECKING:
    from starlette.types import ASGIApp

START_SECONDS = 20.0
MAX_CONNECTIONS = 512
"""Open connections of one server; for one more, the connection that has waited longest for its
client is closed."""
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REGULAR_SECONDS = 120.0
"""A reader within this time is expected again: Prometheus reads at least every minute."""
ONE_LOOK = "rollcast, one look"
"""Part of the user agent of a client that reads once, and is not waited for."""
MAX_READERS = 256
"""Remembered readers; for one more, the one that read longest ago is forgotten."""


class PageReaders:
    """When each reader of /metrics was last given the page, so that a service can wait until its
    last state was read.

    Thread-safe. Moments are monotonic seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at: dict[str, float] = {}

    def note(self, reader: str, rendered_at: float) -> None:
        """The page as it was at `rendered_at` has been sent to `reader`."""
        if ONE_LOOK in reader:
            return
        with self._lock:
            self._read_at[reader] = max(rendered_at, self._read_at.get(reader, rendered_at))
            while len(self._read_at) > MAX_READERS:
                del self._read_at[min(self._read_at, key=self._read_at.__getitem__)]

    def have_read_since(self, moment: float) -> bool:
        """Whether all that read the page regularly before `moment` have read it since, and at least
        one has.
        """
        with self._lock:
            regular = [
                read_at for read_at in self._read_at.values() if read_at > moment - REGULAR_SECONDS
            ]
        return bool(regular) and min(regular) >= moment


def listen(bind: str, port: int, *, setting: str) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises UserError that names `setting` if that fails.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        is_the_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        remedy = "choose a free port" if is_the_port else "bind an address of this machine"
        raise UserError(
            f"{setting} = {port}: {bind} cannot listen on it ({error.strerror}); {remedy}"
        ) from error
    return listener


class Heartbeat:
    """The answer of /healthz: alive while the main loop calls `beat` at least every `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._beaten_at = time.monotonic()

    def beat(self) -> None:
        self._beaten_at = time.monotonic()

    def __call__(self) -> tuple[bool, str]:
        silent = time.monotonic() - self._beaten_at
        if silent <= self._seconds:
            return True, "ok"
        return False, f"the main loop has not turned for {silent:.0f} s"


def always_alive() -> tuple[bool, str]:
    """The probe of a service whose main loop ends the process when it fails."""
    return True, "ok"


def service_routes(
    render_metrics: Callable[[], bytes],
    ready: Callable[[], tuple[bool, str]],
    alive: Callable[[], tuple[bool, str]] = always_alive,
    readers: PageReaders | None = None,
    started: Callable[[], tuple[bool, str]] = always_alive,
    routes: Sequence[Any] = (),
) -> Any:
    """An ASGI application with the probes, each 200 or 503 with the reason, and /metrics.

    /healthz calls `alive`, /readyz `ready`, and /startz `started`, for a service that answers
    before it is complete. `readers` records who has read the metrics, by address and user agent.
    `routes`: others of the service.
    """
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    def probe(path: str, check_status: Callable[[], tuple[bool, str]]) -> Route:
        def answer(_: Request) -> Response:
            holds, reason = check_status()
            return PlainTextResponse(reason + "\n", status_code=200 if holds else 503)

        return Route(path, answer)

    def metrics(request: Request) -> Response:
        rendered_at = time.monotonic()
        page = render_metrics()
        background_task = None
        if readers is not None:
            reader = (
                f"{request.client.host if request.client else ''} "
                f"{request.headers.get('user-agent', '')[:200]}"
            )
            background_task = BackgroundTask(readers.note, reader, rendered_at)
        return Response(page, media_type=METRICS_CONTENT_TYPE, background=background_task)

    probes = [probe("/healthz", alive), probe("/startz", started), probe("/readyz", ready)]
    return Starlette(routes=[*probes, Route("/metrics", metrics), *routes])


class HttpServer:
    """An ASGI application on its own thread, behind the token and the certificate of `settings`.

    start() -> serving -> stop(): `start` returns once connections are accepted, `stop` waits for
    the thread.
    """

    def __init__(
        self,
        application: "ASGIApp",
        listener: socket.socket,
        settings: Http,
        guarded: frozenset[str] = frozenset(),
    ) -> None:
        """`guarded`: paths that the application guards itself; one that ends with / stands for all
        that begin so.

        Raises UserError if certificate or key cannot be used; the listener is closed then.
        """
        import uvicorn

        if settings.token is not None:
            from rollcast.connections.token_gate import TokenGate

            application = TokenGate(application, settings.token.get_secret_value(), guarded)
        self.port: int = listener.getsockname()[1]
        self._connections = WaitingConnections(application, MAX_CONNECTIONS)
        self._listener = WatchedListener(listener, self._connections)
        config = uvicorn.Config(
            self._connections,
            ws="none",
            log_level="warning",
            access_log=False,
            lifespan="auto",
            proxy_headers=False,  # connections are identified by their own address, not by a header
            timeout_graceful_shutdown=2,
            ssl_certfile=settings.tls.certificate if settings.tls else None,
            ssl_keyfile=settings.tls.private_key if settings.tls else None,
        )
        try:
            if settings.tls is not None:
                check_server(settings.tls, "http.tls")
            config.load()
        except BaseException:
            self._listener.close()
            raise
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="http", daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"HTTP server on port {self.port} did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=5.0)

    async def _serve(self) -> None:
        closing = asyncio.create_task(self._connections.close_the_silent())
        await self._server.serve(sockets=[self._listener])
        closing.cancel()
        # A TLS peer may never confirm the end of its connection, for which the loop would wait.
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def local_host(bind: str) -> str:
    """The address under which this machine reaches a server on `bind`: loopback if that is every
    address.
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104  # no bind here


def in_url(host: str) -> str:
    """The host for a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def local_url(settings: Http, port: int) -> str:
    """The URL under which a client on this machine reaches a service that listens by `settings`."""
    return f"{'https' if settings.tls else 'http'}://{in_url(local_host(settings.bind))}:{port}"


def client(
    *,
    timeout_seconds: float = 5.0,
    token: SecretStr | None = None,
    tls: TLS | None = None,
    name: str = "rollcast",
) -> httpx.Client:
    """A client with a deadline on every part of a request, which sends the token and verifies the
    server.

    Its user agent, `name` and the process id, distinguishes it from others on the machine.

    Raises UserError if the certificate authority cannot be read.
    """
    headers = {"user-agent": f"{name} ({os.getpid()})"}
    if token:
        headers["authorization"] = f"Bearer {token.get_secret_value()}"
    verify = verifying_context(tls, "http.tls")
    return httpx.Client(
        timeout=timeout_seconds, headers=headers, verify=verify, follow_redirects=False
    )
