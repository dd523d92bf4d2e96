"""Refuse HTTP requests that do not carry the token."""

import base64
import binascii
import hmac

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/startz"})
"""Probes carry no token."""


class TokenGate:
    """ASGI middleware: 401 without the token, whatever the path and whether it exists, except on
    the probes.

    The token is a bearer token or, because a browser asks its user for nothing else, the password
    of HTTP's basic scheme under any user name.
    """

    def __init__(
        self, application: ASGIApp, token: str, guarded: frozenset[str] = frozenset()
    ) -> None:
        """`guarded`: paths that the application guards itself, with another token; one that ends
        with / stands for all that begin so."""
        self._application = application
        self._token = token.encode()
        self._open = OPEN_PATHS | guarded
        self._open_below = tuple(path for path in guarded if path.endswith("/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "lifespan"
            or self._is_open(scope["path"])
            or presents(scope, self._token)
        ):
            await self._application(scope, receive, send)
            return
        refusal = PlainTextResponse(
            "wrong or missing token; present http.token as bearer token or as password\n",
            status_code=401,
            headers={"www-authenticate": 'Basic realm="rollcast", charset="UTF-8"'},
        )
        await refusal(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(self._open_below)


def presents(scope: Scope, token: bytes) -> bool:
    """Whether a request carries the token, compared in constant time."""
    presented = [_secret(value) for name, value in scope["headers"] if name == b"authorization"]
    return len(presented) == 1 and hmac.compare_digest(presented[0], token)


def _secret(authorization: bytes) -> bytes:
    scheme, _, value = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return value
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            pass
    return b""
