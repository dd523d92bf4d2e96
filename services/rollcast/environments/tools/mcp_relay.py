"""`python -I mcp_relay.py COMMAND...`: starts an MCP server and passes its lines on, except lines
that are too long.

    client ---- standard input, inherited ---------------> server
    client <--- lines of at most MAX_LINE_BYTES --- relay <--- standard output

So an answer of any size neither fills the memory of the client nor stops its loop: the call that
asked for it gets an error. The relay also ends a server whose client is gone and that does not end
by itself. It uses the standard library alone.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

MAX_LINE_BYTES = 4 << 20
"""Longest message of a server. An answer to the model holds some thousand characters; reading this
much takes 20 ms."""
SEARCHED_BYTES = 4_096
"""The id of a message that is too long is looked for at both of its ends."""
GRACE_SECONDS = 5.0
"""Time for a server to end after its client is gone."""
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")')


def messages(server_output: int) -> Iterator[bytes]:
    """Lines of the server, with an error in place of each that is too long.

    Ends with it or after its client.
    """
    line = bytearray()
    num_dropped = 0
    end: float | None = None
    ends = select.poll()
    # Standard input is the server's to read. Its end is reported without asking for it.
    ends.register(0, 0)
    ready = select.poll()
    ready.register(server_output, select.POLLIN)
    while True:
        if end is None and ends.poll(0):
            end = time.monotonic() + GRACE_SECONDS
        if end is not None and time.monotonic() > end:
            return
        # Half a second between two looks at whether the server still lives
        if not ready.poll(500):
            continue
        # Bytes of one read of a pipe
        chunk = os.read(server_output, 1 << 16)
        if not chunk:
            return
        *finished, rest = chunk.split(b"\n")
        for piece in finished:
            num_dropped += _append(line, piece)
            yield _refusal(line, num_dropped) if num_dropped else bytes(line) + b"\n"
            line.clear()
            num_dropped = 0
        num_dropped += _append(line, rest)


def _append(line: bytearray, piece: bytes) -> int:
    """Keep a line's beginning and its last bytes; returns how many bytes
    in between were dropped.
    """
    line += piece
    num_dropped = max(0, len(line) - MAX_LINE_BYTES)
    if num_dropped:
        del line[MAX_LINE_BYTES - SEARCHED_BYTES : len(line) - SEARCHED_BYTES]
    return num_dropped


def _refusal(line: bytearray, num_dropped: int) -> bytes:
    """The error in place of an answer; nothing if it cannot be seen which call it answers."""
    id_match = _ID.search(line[:SEARCHED_BYTES]) or _ID.search(line[-SEARCHED_BYTES:])
    if id_match is None:
        return b""
    error_text = b"the answer has %d bytes, more than the %d that are read" % (
        len(line) + num_dropped,
        MAX_LINE_BYTES,
    )
    # JSON-RPC's code
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"%s"}}\n' % (
        id_match[1],
        -32603,
        error_text,
    )


def main(command: list[str]) -> int:
    server = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603  # the user's own server
    assert server.stdout is not None
    try:
        for message in messages(server.stdout.fileno()):
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        try:
            server.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
    return server.wait()  # has ended, or was killed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
