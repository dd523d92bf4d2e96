"""GET /api/runs/{run}/badge.svg and picture.svg: the forecast where another page shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path
from fastapi.responses import Response

from rollcast.curves.run_forecast import RunForecast
from rollcast.forecaster import pictures
from rollcast.forecaster.board import Board
from rollcast.forecaster.schema import Refusal

SVG = "image/svg+xml"
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {SVG: {"schema": {"type": "string"}}}},
    404: {"model": Refusal, "description": "No such run, or no forecast of it yet"},
    422: {"model": Refusal, "description": "Not as documented"},
}
RunName = Annotated[str, Path(max_length=500, description="Name of the run")]


def picture_router(board: Board) -> APIRouter:
    """Both routes over the newest snapshots."""
    router = APIRouter()

    def drawn(run: str, draw: Callable[[RunForecast], str]) -> Response:
        item = board.get(run)
        if item is None:
            raise HTTPException(404, f"run {run[:100]!r}: no forecast yet; /api/runs lists the runs that have one")
        return Response(draw(item), media_type=SVG, headers=_HEADERS)

    @router.get("/api/runs/{run}/badge.svg", response_class=Response, responses=dict(_RESPONSES))
    def badge(run: RunName) -> Response:
        """The advice, and where the run will end, as a badge."""
        return drawn(run, pictures.badge)

    @router.get("/api/runs/{run}/picture.svg", response_class=Response, responses=dict(_RESPONSES))
    def picture(run: RunName) -> Response:
        """The curve with its forecast, to be embedded."""
        return drawn(run, pictures.picture)

    return router
