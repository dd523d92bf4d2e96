"""Malformed requests, as bytes on a socket."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator

_RUNS = [
    "demo",
    "none",
    "",
    "..",
    "%2e%2e",
    "%00",
    "demo%2Fforecast",
    "x" * 600,
    "%ff%fe",
    "<script>",
    "a:b",
    "😀",
]
_LEAVES = [
    "forecast", "predict", "points", "history", "history/0", "history/x", "history/-1",
    f"history/{10**30}",
    "curve", "target", "status", "", "?",
]  # fmt: skip
_NUMBERS = [
    "1", "0", "-1", "nan", "inf", "-inf", "1e400", "1e-320", "", "x", "0x10", "9" * 5000, "１",
    "1,2", "[]",
    "null", "%00",
]  # fmt: skip
_KEYS = ["compute", "pass_rate", "until", "run", "compute[]", "x"]
_BODIES = [
    b"[" * 100_000, b'{"points":' * 1000, b"{}", b"null", b"", b'{"points":[]}', b"\xff\xfe{}",
        b" " * (2 << 20),
]  # fmt: skip
_VALUES: list[object] = [
    None, True, 0, 1, -1, 0.5, 1e308, 5e-324, 10**400, "0.5", "", "\ud800", [], {}, [[]], {"a": 1},
    float("nan"), float("inf"), -float("inf"), "nan",
]  # fmt: skip
_METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO"]
_TYPES = [
    "application/json",
    "text/plain",
    "",
    "application/json; charset=utf-16",
    "multipart/form-data",
]


def malformed_requests(count: int, seed: int) -> Iterator[bytes]:
    """`count` requests, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _read(draw) if draw.random() < 0.5 else _fit(draw)


def send(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body; status 0 if the server just closed the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        answer = bytearray()
        try:
            connection.sendall(request)
            while chunk := connection.recv(1 << 16):
                answer += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def _read(draw: random.Random) -> bytes:
    if draw.random() < 0.3:
        return _query(draw)
    path = f"/api/runs/{draw.choice(_RUNS)}/{draw.choice(_LEAVES)}"
    pairs = "&".join(
        f"{draw.choice(_KEYS)}={draw.choice(_NUMBERS)}"
        for _ in range(draw.choice([0, 1, 1, 2, 300]))
    )
    method = "GET" if draw.random() < 0.8 else draw.choice(_METHODS)
    return _request(method, f"{path}?{pairs}", b"", "")


def _query(draw: random.Random) -> bytes:
    names = ["query", "query_range", "series", "labels", "label/x/values", "x"]
    path = f"/prometheus/api/v1/{draw.choice(names)}"
    queries = [
        "1+1",
        "up",
        'rollcast_timeline_pass_rate{run="demo"}',
        '{x=~"(a+)+"}',
        "{",
        "x" * 5000,
        "%00",
        "😀",
        "",
    ]
    form = {
        "query": draw.choice(queries),
        "match[]": draw.choice(queries),
        "time": draw.choice(_NUMBERS),
        "start": draw.choice(["0", *_NUMBERS]),
        "end": draw.choice(["1700000000", *_NUMBERS]),
        "step": draw.choice(["1e6", "15s", *_NUMBERS]),
    }
    text = "&".join(f"{name}={value}" for name, value in form.items() if draw.random() < 0.8)
    if draw.random() < 0.5:
        return _request("GET", f"{path}?{text}".replace(" ", "+"), b"", "")
    return _request("POST", path, text.encode(), "application/x-www-form-urlencoded")


def _fit(draw: random.Random) -> bytes:
    kind = draw.randrange(5)
    if kind == 0:
        body = draw.randbytes(draw.randrange(200))
    elif kind == 1:
        body = draw.choice(_BODIES)
    else:
        body = json.dumps(_value(draw, kind)).encode()
    content_type = "application/json" if draw.random() < 0.7 else draw.choice(_TYPES)
    return _request("POST", "/api/fit", body, content_type, chunked=draw.random() < 0.2)


def _request(
    method: str, target: str, body: bytes, content_type: str, *, chunked: bool = False
) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nhost: forecaster\r\nconnection: close\r\n"
    if content_type:
        head += f"content-type: {content_type}\r\n"
    if chunked:
        head += "transfer-encoding: chunked\r\n"
        body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    else:
        head += f"content-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def _value(draw: random.Random, kind: int) -> object:
    if kind == 2:
        names = ["points", "initial", "predict", "other", "\ud800"]
        return {draw.choice(names): draw.choice(_VALUES) for _ in range(3)}
    numbers = [0, 1e-300, 1e-9, 0.5, 1, 1e6, 1e12] if kind == 3 else _VALUES
    choices = {
        "compute": numbers,
        "pass_rate": [0, 0.5, 1],
        "standard_error": [0, 1e-300, 0.01, 1, None],
    }
    points = [
        {name: draw.choice(values) for name, values in choices.items()}
        for _ in range(draw.choice([0, 1, 2, 5, 40]))
    ]
    initial = draw.choice([None, 0, 1, 0.5])
    more = {"initial": initial, "exclude_before": draw.choice([None, 0, 1e12, 0.7])}
    predict = [draw.choice(numbers)]
    num_prompts = draw.choice([0, 1, 10**9, -1])
    return {"points": points, "predict": predict, "num_prompts": num_prompts, **more}
