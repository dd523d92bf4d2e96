"""Bodies as they come over HTTP, and the order in which large ones are read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rollcast.generator.endpoint.bodies import MAX_VALUES, SMALL_BYTES, read_json
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
    async def read(self, request: "Request", max_values: int = MAX_VALUES) -> AsyncIterator[Any]:
        """The body as JSON. The turn of a large one ends with the context.

        Raises RefusedRequestError for one that is too large, too slow, or not JSON.
        """
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
        is_large = len(content) > SMALL_BYTES
        async with self._reading if is_large else nullcontext():
            yield read_json(content, max_values)
            if is_large:
                # Between two large bodies, which take up to half a second each
                await asyncio.sleep(0.02)
