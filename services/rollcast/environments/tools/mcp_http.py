"""Streamable HTTP to an MCP server, with bounded answers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

MAX_ANSWER_BYTES = 4 << 20
"""Largest answer, as over standard output (mcp_relay)."""
CONNECT_SECONDS = 30.0
REFUSED_STATUS = (401, 403)
TOKEN_REMEDY = "let token_variable name the environment variable that holds its token"  # noqa: S105  # a remedy


@asynccontextmanager
async def bounded_http(
    url: str, headers: Mapping[str, str], call_seconds: float
) -> AsyncIterator[Any]:
    """The client's transport. An answer that is too long fails its call alone.

    No redirect is followed: `headers` are for the server of `url` alone.
    """
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=max(CONNECT_SECONDS, call_seconds))
    async with (
        httpx2.AsyncClient(
            transport=_BoundedTransport(), headers=headers, timeout=timeout
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_ANSWER_BYTES
        ) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError if the server refuses the token: the client would not give
        the reason.
        """
        response = await super().handle_async_request(request)
        if response.status_code in REFUSED_STATUS:
            await response.aclose()
            raise httpx2.TransportError(
                f"it answers with status {response.status_code}: {TOKEN_REMEDY}"
            )
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        if not is_stream:  # its events are bounded one by one
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises httpx2.StreamError beyond the bound, which the client reports as an error of this
        call.
        """
        num_bytes = 0
        async for chunk in self._stream:
            num_bytes += len(chunk)
            if num_bytes > MAX_ANSWER_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
