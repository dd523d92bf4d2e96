"""HTTP of every service: /healthz, /readyz, /metrics, and clients with deadlines."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from rollcast.config.errors import UserError

START_SECONDS = 20.0
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def listen(bind: str, port: int, *, setting: str) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises UserError naming `setting` where the port is taken."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UserError(
            f"{setting} = {port}: {bind} cannot listen on it ({error.strerror}); choose a free port"
        ) from error
    return listener


def service_routes(render_metrics: Callable[[], bytes], ready: Callable[[], tuple[bool, str]]) -> Any:
    """The ASGI application of a service that only reports: /healthz, /readyz (503 with the reason), /metrics."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    def readyz(_: Request) -> Response:
        is_ready, reason = ready()
        return PlainTextResponse(reason + "\n", status_code=200 if is_ready else 503)

    def metrics(_: Request) -> Response:
        return Response(render_metrics(), media_type=METRICS_CONTENT_TYPE)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])


class HttpServer:
    """An ASGI application on its own thread.

    start() -> serving -> stop(): `start` returns once connections are accepted, `stop` waits for the thread.
    """

    def __init__(self, application: Any, listener: socket.socket) -> None:
        import uvicorn

        self.port: int = listener.getsockname()[1]
        self._listener = listener
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, lifespan="auto", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

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

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])


def publish_port(folder: Path, service: str, port: int) -> None:
    """Write the port a service listens on to the run folder, where local mode and the forecaster find it."""
    ports = folder / "ports"
    ports.mkdir(parents=True, exist_ok=True)
    temporary = ports / f".{service}.tmp"
    temporary.write_text(f"{port}\n")
    temporary.replace(ports / service)


def client(*, timeout_seconds: float = 5.0, token: str | None = None) -> httpx.Client:
    """A client with a deadline on every part of a request."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(timeout=timeout_seconds, headers=headers, follow_redirects=False)
