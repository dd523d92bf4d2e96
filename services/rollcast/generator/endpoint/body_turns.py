"""Bodies as they come over HTTP, and the order in which large ones are read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rollcast.generator.endpoint.bodies import SMALL_BYTES
from rollcast.generator.endpoint.refusals import RefusedRequestError

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY_BYTES = 16 << 20
"""A history of a million tokens has some 4 MB."""


class BodyTurns:
    """Large bodies are read one after another, so that probes are answered between them."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    @asynccontextmanager
    async def take(self, content: bytearray) -> AsyncIterator[None]:
        """A turn to read this body; a small one needs none."""
        if len(content) <= SMALL_BYTES:
            yield
            return
        async with self._reading:
            yield
            # Between two large bodies, which take up to half a second each
            await asyncio.sleep(0.02)


async def read_content(request: "Request") -> bytearray:
    """The body. Raises RefusedRequestError for one that is too large or too slow."""
    content = bytearray()
    # Deadline for a client to send its body.
    body_seconds = 60.0
    try:
        async with asyncio.timeout(body_seconds):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MAX_BODY_BYTES:
                    raise RefusedRequestError(
                        f"the body has more than {MAX_BODY_BYTES} bytes", 413, "too_large"
                    )
    except TimeoutError:
        raise RefusedRequestError(
            f"the body did not arrive within {body_seconds:g} seconds", 400, "too_slow"
        ) from None
    return content
