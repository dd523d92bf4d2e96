"""The files of the live page, read once and served as they are."""

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter
from fastapi.responses import Response

_SCRIPT = "text/javascript; charset=utf-8"
_STYLE = "text/css; charset=utf-8"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", _STYLE),
    **{f"/{name}.js": (f"{name}.js", _SCRIPT) for name in ("page", "charts", "plot", "tables", "words")},
    "/vendor/uplot/uPlot.iife.min.js": ("vendor/uplot/uPlot.iife.min.js", _SCRIPT),
    "/vendor/uplot/uPlot.min.css": ("vendor/uplot/uPlot.min.css", _STYLE),
    "/vendor/uplot/LICENSE": ("vendor/uplot/LICENSE", "text/plain; charset=utf-8"),
}
"""Path, file below page/, and media type."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def page_router() -> APIRouter:
    router = APIRouter()
    for path, (name, media_type) in _FILES.items():
        router.add_api_route(path, _file(name, media_type), include_in_schema=False)
    return router


def _file(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    content = resources.files("rollcast.forecaster").joinpath("page", *name.split("/")).read_bytes()

    async def serve() -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return serve
