"""A small HTTP server that answers as vLLM does with `prompt_logprobs`, and misbehaves as it is
told to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from testkit.tiny_model import write_tokenizer

Answer = tuple[int, bytes]
"""HTTP status and content."""
Behaviour = Callable[[str, dict[str, Any]], Answer]
"""The answer to a path and a body."""


def logprob(position: int, token: int) -> float:
    """What this teacher thinks of a token."""
    return -0.25 - (token % 7) / 3 - position / 100


def completion(
    body: dict[str, Any], *, value: Callable[[int, int], Any] = logprob
) -> dict[str, Any]:
    """vLLM's answer to /v1/completions."""
    rows: list[dict[str, Any] | None] = [
        {str(token): {"logprob": value(position, token), "rank": 1, "decoded_token": "x"}}
        for position, token in enumerate(body["prompt"])
    ]
    rows[0] = None
    return {"choices": [{"index": 0, "text": "x", "prompt_logprobs": rows}]}


def working(path: str, body: dict[str, Any]) -> Answer:
    assert path == "/v1/completions"
    assert body["prompt_logprobs"] == 0
    assert body["max_tokens"] == 1
    return 200, json.dumps(completion(body)).encode()


@contextmanager
def teacher_server(behaviour: Behaviour) -> Iterator[str]:
    """Its address, ending in /v1."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, content = behaviour(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join(10.0)
        server.server_close()


def with_tokens_exchanged(folder: Path) -> Path:
    """The same tokens, of which two have each other's id."""
    write_tokenizer(folder)
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    vocabulary = settings["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(settings))
    return folder
