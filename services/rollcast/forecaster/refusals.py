"""How the HTTP API refuses a request: one sentence in `detail`."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollcast.forecaster.query_api import PREFIX, refusal
from rollcast.forecaster.schema import Refusal

MAX_BODY_BYTES = 1 << 20
_MEANINGS = {
    400: "A body that cannot be read",
    401: "No token, or another one",
    403: "No token is set",
    404: "No such run, or no forecast of it yet",
    413: f"A body of more than {MAX_BODY_BYTES} bytes",
    422: "Not as documented, or points that cannot be fitted",
    429: "Too many concurrent fits",
    503: "Busy with another reading",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Entries of these statuses for the OpenAPI document."""
    return {status: {"model": Refusal, "description": _MEANINGS[status]} for status in statuses}


def add_refusals(application: FastAPI) -> None:
    """Answer a request that is malformed or has no answer."""
    application.add_exception_handler(RequestValidationError, _refuse_malformed)
    application.add_exception_handler(StarletteHTTPException, _refuse)


async def _refuse_malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(segment) for segment in first["loc"]) or "request"
    value = first.get("input")
    is_shown = isinstance(value, str | int | float) and not _is_huge(value)
    value_text = f" = {value!r:.60}" if is_shown else ""
    return _sentence(422, f"{where:.200}{value_text}: {first['msg']}")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if (
        request.url.path.startswith(f"{PREFIX}/")
        and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    ):
        return refusal(
            f"{request.method} is not answered here; use GET or POST",
            error.status_code,
            error.headers,
        )
    return _sentence(error.status_code, str(error.detail), error.headers)


def _sentence(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Lone surrogates, which JSON may carry in and UTF-8 may not carry out, are escaped."""
    safe = text.encode("utf-8", errors="backslashreplace").decode()
    return JSONResponse({"detail": safe}, status_code=status, headers=headers)


def _is_huge(value: str | float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    # A larger one is left out of the sentence: it may have a million digits
    return abs(value) > (10**18) or not math.isfinite(value)


class BodyLimit:
    """ASGI middleware: 413 beyond `max_bytes`, whether or not the request states its length."""

    def __init__(self, application: ASGIApp, max_bytes: int) -> None:
        self._application = application
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        refusal = JSONResponse(
            {"detail": f"the body is larger than {self._max_bytes} bytes; send fewer points"}, 413
        )
        content_length = dict(scope["headers"]).get(b"content-length", b"0")
        if not content_length.isdigit() or int(content_length[:20]) > self._max_bytes:
            await refusal(scope, receive, send)
            return
        received = 0
        chunks: list[Message] = []
        while True:
            message = await receive()
            chunks.append(message)
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                await refusal(scope, receive, send)
                return
            if message["type"] != "http.request" or not message.get("more_body", False):
                break

        async def replay() -> Message:
            return chunks.pop(0) if chunks else await receive()

        await self._application(scope, replay, send)
