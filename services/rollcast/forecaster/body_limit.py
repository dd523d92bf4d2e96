"""Refuse a request body before it is held in memory."""

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware: 413 beyond `max_bytes`, whether or not the request states its length."""

    def __init__(self, application: ASGIApp, max_bytes: int) -> None:
        self._application = application
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        refusal = JSONResponse({"detail": f"the body is larger than {self._max_bytes} bytes; send fewer points"}, 413)
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told[:20]) > self._max_bytes:
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
