"""The HTTP API and the live page. A caller's mistake is a 4xx with one sentence."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from rollcast.config.bounds import MOST_COMPUTE
from rollcast.connections.http import METRICS_CONTENT_TYPE, always_alive
from rollcast.curves.run_forecast import RunForecast
from rollcast.forecaster import answers, schema
from rollcast.forecaster.board import Board
from rollcast.forecaster.body_limit import BodyLimit
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.own_curve import fit_answer
from rollcast.forecaster.query_api import PREFIX, query_router, refusal

MAX_BODY_BYTES = 1 << 20
MAX_FITS_AT_ONCE = 4
MAX_WAIT_SECONDS = 10.0
MAX_WAITING = 128
"""Requests that wait at once, a part of all connections; one more is answered without waiting."""
LOOK_SECONDS = 0.1
"""Between two looks of a request that waits for a change."""
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_PAGE = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", _STYLE),
    **{f"/{name}.js": (f"{name}.js", _SCRIPT) for name in ("page", "charts", "plot", "tables", "words")},
    "/vendor/uplot/uPlot.iife.min.js": ("vendor/uplot/uPlot.iife.min.js", _SCRIPT),
    "/vendor/uplot/uPlot.min.css": ("vendor/uplot/uPlot.min.css", _STYLE),
    "/vendor/uplot/LICENSE": ("vendor/uplot/LICENSE", "text/plain; charset=utf-8"),
}
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
_REFUSALS = {
    400: "A body that cannot be read",
    404: "No such run, or no forecast of it yet",
    413: f"A body of more than {MAX_BODY_BYTES} bytes",
    422: "Not as documented, or points that cannot be fitted",
    429: "Too many fits at once",
}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of them."""
    return {status: {"model": schema.Refusal, "description": _REFUSALS[status]} for status in statuses}


RunName = Annotated[str, Path(max_length=500, description="Name of the run")]
Compute = Annotated[float, Query(gt=0, le=MOST_COMPUTE, allow_inf_nan=False)]


def build_application(
    board: Board,
    history: History,
    metrics: ForecastMetrics,
    engine: ForecastEngine,
    alive: Callable[[], tuple[bool, str]] = always_alive,
) -> FastAPI:
    """Routes over the shared snapshots; nothing here changes them."""
    application = FastAPI(
        title="Rollcast forecaster", version="1", docs_url=None, redoc_url=None, redirect_slashes=False
    )
    application.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    application.add_exception_handler(RequestValidationError, _refuse_request)
    application.add_exception_handler(StarletteHTTPException, _refuse)
    fits = threading.BoundedSemaphore(MAX_FITS_AT_ONCE)

    def find(run: str) -> RunForecast:
        forecast = board.get(run)
        if forecast is None:
            raise HTTPException(404, f"run {run[:100]!r}: no forecast yet; /api/runs lists the runs that have one")
        return forecast

    waiting: set[Request] = set()

    async def wait_for_change(
        request: Request,
        after: Annotated[str, Query(max_length=100, description="The `version` of an earlier answer")] = "",
        wait_seconds: Annotated[
            float, Query(ge=0, le=MAX_WAIT_SECONDS, description="How long the answer may wait for a newer version")
        ] = 0.0,
    ) -> None:
        if len(waiting) >= MAX_WAITING:
            return
        waiting.add(request)
        deadline = time.monotonic() + wait_seconds
        try:
            while board.version == after and not board.closed and time.monotonic() < deadline:
                if await request.is_disconnected():
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            waiting.discard(request)

    application.include_router(query_router(board))
    for path, (name, media_type) in _PAGE.items():
        application.add_api_route(path, _page_file(name, media_type), include_in_schema=False)

    @application.get("/healthz", response_class=PlainTextResponse, responses={503: {"description": "It hangs"}})
    def healthz() -> Response:
        """Alive: the loop that reads and fits turns."""
        is_alive, reason = alive()
        return PlainTextResponse(reason + "\n", status_code=200 if is_alive else 503)

    @application.get("/readyz", response_class=PlainTextResponse)
    def readyz() -> str:
        """Ready as soon as it serves: a source that is away is told, and keeps nobody from reading what is known."""
        source = board.source
        return "ok\n" if source.up else f"ok, but the source is away: {source.message}\n"

    @application.get("/metrics", response_class=PlainTextResponse)
    def metrics_page() -> Response:
        """The forecasts as Prometheus metrics."""
        return Response(metrics.render(), media_type=METRICS_CONTENT_TYPE)

    @application.get("/api/runs", dependencies=[Depends(wait_for_change)], responses=_refusals(422))
    def runs() -> schema.RunsAnswer:
        """Every run's newest forecast, and whether the source answers; on request, as soon as that has changed."""
        version = board.version  # before what it names: a change in between is told again, not missed
        return schema.RunsAnswer(
            source=answers.source_answer(board.source),
            now=time.time(),
            version=version,
            runs=[answers.forecast_answer(item) for item in board.all()],
        )

    @application.get("/api/runs/{run}/forecast", responses=_refusals(404, 422))
    def forecast(run: RunName) -> schema.ForecastAnswer:
        """The newest forecast of a run."""
        return answers.forecast_answer(find(run))

    @application.get("/api/runs/{run}/advice", responses=_refusals(404, 422))
    def advice(
        run: RunName,
        budget: Annotated[
            Compute | None, Query(description="Compute at which the run would end; the run's own")
        ] = None,
        worth: Annotated[
            float | None, Query(ge=0, le=1, allow_inf_nan=False, description="Gain that pays for the rest")
        ] = None,
        price: Annotated[
            float | None, Query(ge=0, le=1e9, allow_inf_nan=False, description="Of one device-hour")
        ] = None,
    ) -> schema.AdviceAnswer:
        """Stop, continue or wait: what to do with the rest of a budget."""
        return schema.AdviceAnswer(**find(run).advice(budget, worth, price).to_dict())

    @application.get("/api/runs/{run}/predict", responses=_refusals(404, 422))
    def predict(
        run: RunName, compute: Annotated[list[Compute], Query(min_length=1, max_length=200)]
    ) -> schema.PredictAnswer:
        """The pass rate at one or several computes (device-hours)."""
        item = find(run)
        return schema.PredictAnswer(run=item.name, predictions=answers.predictions(item, compute))

    @application.get("/api/runs/{run}/target", responses=_refusals(404, 422))
    def target(
        run: RunName, pass_rate: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)]
    ) -> schema.TargetAnswer:
        """The compute that reaches a pass rate."""
        return answers.target_answer(find(run), pass_rate)

    @application.get("/api/runs/{run}/points", responses=_refusals(404, 422))
    def points(run: RunName) -> schema.PointsAnswer:
        """The evaluations of the surviving history."""
        return answers.points_answer(find(run))

    @application.get("/api/runs/{run}/curve", responses=_refusals(404, 422))
    def curve(run: RunName, until: Compute | None = None) -> schema.CurveAnswer:
        """Fit, bands and the power law, for drawing."""
        return answers.curve_answer(find(run), until)

    @application.get("/api/runs/{run}/history", responses=_refusals(404, 422))
    def past(run: RunName) -> schema.HistoryAnswer:
        """What was said earlier, oldest first."""
        item = find(run)
        return schema.HistoryAnswer(
            run=item.name, forecasts=[answers.past_answer(entry) for entry in history.forecasts(item.name)]
        )

    @application.get("/api/runs/{run}/history/{forecast_id}", responses=_refusals(404, 422))
    def past_curve(run: RunName, forecast_id: Annotated[int, Path(ge=0, le=2**62)]) -> schema.PastCurveAnswer:
        """One earlier forecast with its bands."""
        item = find(run)
        entry = history.forecast(item.name, forecast_id)
        if entry is None:
            raise HTTPException(404, f"forecast {forecast_id} of run {item.name!r} is not kept (any more)")
        return answers.past_curve_answer(entry, engine.grid(item.name))

    @application.get("/api/runs/{run}/status", responses=_refusals(404, 422))
    def status(run: RunName) -> schema.StatusAnswer:
        """Staleness, truncation and step, as the run's trainer tells them."""
        item = find(run)
        return answers.status_answer(item.name, *board.status(item.newest.run))

    @application.post("/api/fit", responses=_refusals(400, 413, 422, 429))
    def fit(request: Annotated[schema.FitRequest, Body()]) -> schema.FitAnswer:
        """Forecast a curve of one's own."""
        if not fits.acquire(timeout=5.0):
            raise HTTPException(429, "too many fits at once; send this one again in a moment")
        try:
            return fit_answer(request)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        finally:
            fits.release()

    return application


def _page_file(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    content = resources.files("rollcast.forecaster").joinpath("page", *name.split("/")).read_bytes()

    async def serve() -> Response:
        return Response(content, media_type=media_type, headers=_PAGE_HEADERS)

    return serve


async def _refuse_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "request"
    value = first.get("input")
    shown = f" = {value!r:.60}" if isinstance(value, str | int | float) and not _is_huge(value) else ""
    return _sentence(422, f"{where:.200}{shown}: {first['msg']}")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if request.url.path.startswith(f"{PREFIX}/") and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return refusal(f"{request.method} is not answered here; use GET or POST", error.status_code, error.headers)
    return _sentence(error.status_code, str(error.detail), error.headers)


def _sentence(status: int, text: str, headers: Any = None) -> Response:
    """Lone surrogates, which JSON may carry in and UTF-8 may not carry out, are escaped."""
    safe = text.encode("utf-8", errors="backslashreplace").decode()
    return JSONResponse({"detail": safe}, status_code=status, headers=headers)


def _is_huge(value: str | float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (abs(value) > 10**18 or not math.isfinite(value))
