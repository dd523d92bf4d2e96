"""`python -m testkit.mcp_server [--http PORT] [--host ADDRESS] [--json]`: an MCP server that can
misbehave.

It is made with the official package. With TESTKIT_MCP_TOKEN it answers over HTTP those alone who
present that token.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

TOKEN = os.environ.get("TESTKIT_MCP_TOKEN")


class OneToken:
    """Implements the package's TokenVerifier."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="testkit", scopes=[]) if token == TOKEN else None


guarded = (
    AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None)
    if TOKEN
    else None
)
server = MCPServer("testkit", auth=guarded, token_verifier=OneToken() if TOKEN else None)


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="files.read")
def read(path: str) -> str:
    """Read a file that does not exist."""
    raise FileNotFoundError(path)


@server.tool()
def large(num_bytes: int) -> str:
    """Return that many characters."""
    return "x" * num_bytes


@server.tool()
async def sleep(seconds: float) -> str:
    """Answer after a while; other calls are served meanwhile."""
    await asyncio.sleep(seconds)
    return "slept"


@server.tool()
async def hang(seconds: float) -> str:
    """Stop the whole server for a while."""
    time.sleep(seconds)  # noqa: ASYNC251  # that is the misbehavior
    return "hung"


@server.tool()
def die() -> str:
    """End the server in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def process_id() -> str:
    """The number of the server's process."""
    return str(os.getpid())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.http is None:
        server.run("stdio")
    else:
        server.run(
            "streamable-http",
            host=arguments.host,
            port=arguments.http,
            json_response=arguments.json,
        )


if __name__ == "__main__":
    main()
