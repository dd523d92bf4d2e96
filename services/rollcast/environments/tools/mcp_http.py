"""Streamable HTTP to an MCP server, with bounded answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

MAX_ANSWER_BYTES = 4 << 20
"""Largest answer, as over standard output (mcp_relay)."""
CONNECT_SECONDS = 30.0


@asynccontextmanager
async def bounded_http(url: str, call_seconds: float) -> AsyncIterator[Any]:
    """The client's transport. An answer that is too long fails its call alone."""
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=max(CONNECT_SECONDS, call_seconds))
    async with (
        httpx2.AsyncClient(transport=_BoundedTransport(), timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_ANSWER_BYTES) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        if not is_stream:  # its events are bounded one by one
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises httpx2.StreamError beyond the bound, which the client reports as an error of this call."""
        num_bytes = 0
        async for part in self._stream:
            num_bytes += len(part)
            if num_bytes > MAX_ANSWER_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
