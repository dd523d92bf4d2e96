"""The HTTP API and the live page. A caller's mistake is a 4xx with one sentence."""

import threading
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, Response

from rollcast.connections.http import METRICS_CONTENT_TYPE, always_alive
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.folder_tail import FolderTail
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.own_curve import fit_answer
from rollcast.forecaster.query_api import query_router
from rollcast.forecaster.refusals import MAX_BODY_BYTES, BodyLimit, add_refusals, refusals
from rollcast.forecaster.run_api import RunApi
from rollcast.forecaster.schema import FitAnswer, FitRequest

_SCRIPT = "text/javascript; charset=utf-8"
_STYLE = "text/css; charset=utf-8"
_MODULES = (
    "page",
    "state",
    "advice",
    "figure",
    "earlier",
    "evidence",
    "tables",
    "samples",
    "plot",
    "words",
)
_PAGE_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", _STYLE),
    **{f"/{name}.js": (f"{name}.js", _SCRIPT) for name in _MODULES},
    "/vendor/uplot/uPlot.iife.min.js": ("vendor/uplot/uPlot.iife.min.js", _SCRIPT),
    "/vendor/uplot/uPlot.min.css": ("vendor/uplot/uPlot.min.css", _STYLE),
    "/vendor/uplot/LICENSE": ("vendor/uplot/LICENSE", "text/plain; charset=utf-8"),
}
"""Path, file below page/, and media type."""
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def build_application(
    board: Board,
    history: History,
    metrics: ForecastMetrics,
    engine: ForecastEngine,
    tail: FolderTail,
    alive: Callable[[], tuple[bool, str]] = always_alive,
) -> FastAPI:
    """Routes over the shared snapshots; nothing here changes them."""
    application = FastAPI(
        title="Rollcast forecaster",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    application.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    add_refusals(application)
    application.include_router(query_router(board))
    for path, (name, media_type) in _PAGE_FILES.items():
        application.add_api_route(path, _page_file(name, media_type), include_in_schema=False)
    _add_health(application, board, metrics, alive)
    application.include_router(RunApi(board, history, engine, tail).router())
    _add_fit(application)
    return application


def _add_health(
    application: FastAPI,
    board: Board,
    metrics: ForecastMetrics,
    alive: Callable[[], tuple[bool, str]],
) -> None:
    @application.get(
        "/healthz", response_class=PlainTextResponse, responses={503: {"description": "It hangs"}}
    )
    def healthz() -> Response:
        """Alive: the loop that reads and fits turns."""
        is_alive, reason = alive()
        return PlainTextResponse(reason + "\n", status_code=200 if is_alive else 503)

    @application.get("/readyz", response_class=PlainTextResponse)
    def readyz() -> str:
        """Ready as soon as it serves.

        If the source is away, the answer says so; known forecasts are still served.
        """
        source = board.source
        return "ok\n" if source.up else f"ok, but the source is away: {source.message}\n"

    @application.get("/metrics", response_class=PlainTextResponse)
    def metrics_page() -> Response:
        """The forecasts as Prometheus metrics."""
        return Response(metrics.render(), media_type=METRICS_CONTENT_TYPE)


def _add_fit(application: FastAPI) -> None:
    # Fits take a core each, and refits of the runs need theirs
    fits = threading.BoundedSemaphore(4)

    @application.post("/api/fit", responses=refusals(400, 413, 422, 429))
    def fit(request: Annotated[FitRequest, Body()]) -> FitAnswer:
        """Forecast a curve of one's own."""
        # How long a fit waits for one of the others to end before it is refused
        if not fits.acquire(timeout=5.0):
            raise HTTPException(429, "too many concurrent fits; send this one again in a moment")
        try:
            return fit_answer(request)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        finally:
            fits.release()


def _page_file(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    """A file of the live page, read once and served as it is."""
    content = resources.files("rollcast.forecaster").joinpath("page", *name.split("/")).read_bytes()

    async def serve() -> Response:
        return Response(content, media_type=media_type, headers=_PAGE_HEADERS)

    return serve
