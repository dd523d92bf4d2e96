"""python -m tests.generator.endpoint.hostile_bodies NAME ...: processor time and memory of each
body, as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rollcast.generator.endpoint.bodies import MAX_TOKENS, read_json
from rollcast.generator.endpoint.body_turns import MAX_BODY_BYTES
from rollcast.generator.endpoint.protocol import read_request
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.token_request import TokenRequest
from rollcast.rollouts.records import Sampling

SAMPLING = Sampling(1.0, 1.0, 0, 7)
ROOM = MAX_BODY_BYTES - 1_000
USER = {"role": "user", "content": "x"}


def filled(unit: bytes, room: int = ROOM) -> bytes:
    """A list's content of that many bytes."""
    return b",".join([unit] * (room // (len(unit) + 1)))


def in_content(content: bytes) -> bytes:
    return b'{"messages": [{"role": "user", "content": [' + content + b"]}]}"


def in_messages(content: bytes) -> bytes:
    return b'{"messages": [' + content + b"]}"


def in_text(text: bytes) -> bytes:
    return in_content(b'{"type": "text", "text": "' + text + b'"}')


def in_arguments(arguments: str) -> bytes:
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    return json.dumps({"messages": [{"role": "assistant", "tool_calls": [call]}, USER]}).encode()


def with_tool(parameters: object) -> bytes:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    return json.dumps({"messages": [USER], "tools": [tool]}).encode()


def with_setting(name: str, value: bytes) -> bytes:
    return b'{"messages": [{"role": "user", "content": "x"}], "%s": %s}' % (name.encode(), value)


def with_call(arguments: bytes) -> bytes:
    call = b'{"id": "1", "function": {"name": "f", "arguments": %s}}' % arguments
    return in_messages(
        b'{"role": "assistant", "tool_calls": [%s]}, {"role": "user", "content": "x"}' % call
    )


BODIES: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: in_content(filled(b"1")),
    "less than a megabyte of numbers": lambda: in_content(filled(b"1", 750_000)),
    "large numbers": lambda: in_content(filled(b"1000")),
    "empty objects": lambda: in_content(filled(b"{}")),
    "a quarter of a megabyte of empty objects": lambda: in_content(filled(b"{}", 250_000)),
    "empty lists": lambda: in_content(filled(b"[]")),
    "empty texts": lambda: in_content(filled(b'""')),
    "objects with keys": lambda: in_content(b",".join(b'{"%d":{}}' % n for n in range(140_000))),
    "nesting": lambda: in_content(b"[" * ROOM),
    "closed nesting": lambda: in_content(b"[" * 900 + b"]" * 900),
    "empty messages": lambda: in_messages(filled(b"{}")),
    "ten thousand empty messages": lambda: in_messages(filled(b"{}", 30_000)),
    "many messages": lambda: in_messages(
        filled(b'{"role": "user", "content": "%s"}' % (b"x" * 1_700))
    ),
    "too many messages": lambda: in_messages(filled(b'{"role": "user", "content": ""}')),
    "many messages of one part": lambda: in_messages(
        filled(b'{"role": "user", "content": [{"type": "text", "text": "%s"}]}' % (b"x" * 1_700))
    ),
    "right text parts": lambda: in_content(
        filled(b'{"type": "text", "text": "%s"}' % (b"x" * 16_800))
    ),
    "many text parts": lambda: in_content(filled(b'{"type": "text", "text": "x"}')),
    "one text": lambda: in_text(b"x" * (ROOM - 100)),
    "line breaks": lambda: in_text(b"\\n" * (ROOM // 2 - 100)),
    "backslashes": lambda: in_text(b"\\\\" * (ROOM // 2 - 100)),
    "letters of two bytes": lambda: in_text("é".encode() * (ROOM // 2 - 100)),
    "one letter of four bytes": lambda: in_text(b"x" * (ROOM - 100) + "😀".encode()),
    "arguments of numbers": lambda: in_arguments(f"[{filled(b'1').decode()}]"),
    "arguments of empty objects": lambda: in_arguments(f"[{filled(b'{}').decode()}]"),
    "arguments of a long text": lambda: in_arguments(json.dumps({"code": "f(1, 2)," * 1_500_000})),
    "nested arguments": lambda: in_arguments("[" * 900 + "]" * 900),
    "arguments of long numbers": lambda: in_arguments(f"[{filled(b'1' * 4_200).decode()}]"),
    "arguments of letters as wide as one emoji": lambda: with_call(
        '"😀'.encode() + b"a" * (ROOM - 200) + b'"'
    ),
    "arguments that are an object of lists": lambda: with_call(
        b'{"a": [%s]}' % filled(b"[1.5]", 1_700_000)
    ),
    "280,000 empty lists": lambda: in_content(filled(b"[]", 840_000)),
    "lists 60 deep": lambda: in_content(filled(b"[" * 58 + b"]" * 58, 570_000)),
    "a message of many fields": lambda: in_messages(
        b'{"role": "user", "content": "x", "own": [%s]}' % filled(b"[1.5]", 1_700_000)
    ),
    "many settings": lambda: (
        b'{"messages": [{"role": "user"}], %s}' % b",".join(b'"%d":1' % n for n in range(290_000))
    ),
    "long numbers": lambda: with_setting("user", b"[%s]" % filled(b"1" * 4_200)),
    "one long number": lambda: with_setting("user", b"1" * (ROOM - 100)),
    "a long key": lambda: with_setting("k" * (ROOM - 100), b"1"),
    "UTF-16, whose escapes cannot be counted": lambda: (
        '["\\"",' + "[]," * 2_700_000 + "1]"
    ).encode("utf-16-le"),
    "half an emoji after a whole one": lambda: in_text(
        "😀".encode() + b"x" * (ROOM - 200) + b"\\ud83d"
    ),
    "halves of emojis": lambda: in_text(b"\\ud83d" * (ROOM // 6 - 100)),
    "2,000 calls with their results": lambda: in_messages(
        filled(
            with_call(b'"{}"')[
                len(b'{"messages": [') : -len(b', {"role": "user", "content": "x"}]}')
            ]
            + b', {"role": "tool", "tool_call_id": "1", "content": "%s"}' % (b"x" * 8_000)
        )
    ),
    "tools of numbers": lambda: (
        b'{"messages": [{"role": "user"}], "tools": [' + filled(b"1") + b"]}"
    ),
    "a tool with a large schema": lambda: with_tool({"enum": ["x" * 60] * 200_000}),
    "a setting that nobody knows": lambda: (
        b'{"messages": [{"role": "user"}], "x": [' + filled(b"1" * 60) + b"]}"
    ),
    "a list of stops": lambda: (
        b'{"messages": [{"role": "user"}], "stop": [' + filled(b"1" * 60) + b"]}"
    ),
    "tokens": lambda: (
        b'{"token_ids": [' + filled(b"1000000000", 16_000_000) + b'], "sampling_params": {}}'
    ),
    "too many tokens": lambda: b'{"token_ids": [' + filled(b"1") + b'], "sampling_params": {}}',
}
READ = frozenset(
    {
        *(
            "many messages",
            "many messages of one part",
            "right text parts",
            "one text",
            "line breaks",
            "backslashes",
        ),
        *("a setting that nobody knows", "tokens"),
        *("one letter of four bytes", "letters of two bytes", "half an emoji after a whole one"),
        "halves of emojis",  # what is more than 10,000 stays, and is refused as text
        *("arguments of a long text", "nested arguments", "arguments of long numbers"),
        *(
            "arguments of letters as wide as one emoji",
            "a long key",
            "2,000 calls with their results",
        ),
    }
)
"""Requests that are in order."""
MAX_SECONDS = 0.5
MAX_MORE_BYTES = 100 << 20
SLOWNESS = 4.0
"""Processor time is longer where others share the core; one body of the old kind took fourteen
seconds."""


def measured(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """These bodies, each in a fork of one process that has imported everything."""
    program = [sys.executable, "-m", "tests.generator.endpoint.hostile_bodies", *names]
    run = subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    found: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return found


def check(name: str, found: dict[str, Any]) -> None:
    assert found["size"] <= MAX_BODY_BYTES
    assert found["seconds"] < SLOWNESS * MAX_SECONDS, found
    assert found["bytes"] < found["size"] + MAX_MORE_BYTES, found
    assert (found["how"] == "read") == (name in READ), found


def read(content: bytes) -> str:
    try:
        if content.startswith(b'{"token_ids"'):
            body = read_json(content, MAX_TOKENS)
            TokenRequest.read(body, SAMPLING, replaces=True, is_retry=None)
        else:
            read_request(read_json(content), "m", SAMPLING, replaces=True, is_retry=None)
    except RefusedRequestError as refusal:
        return str(refusal)
    return "read"


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def measure(name: str) -> dict[str, object]:
    content = BODIES[name]()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    began = time.process_time()
    how = read(content)
    seconds = time.process_time() - began
    return {"how": how, "seconds": seconds, "bytes": peak_bytes() - before, "size": len(content)}


def main() -> None:
    read(json.dumps({"messages": [USER]}).encode())
    read(in_content(filled(b"1", 1_000_000)))
    gc.collect()
    gc.freeze()  # as a generator does
    found = {}
    for name in sys.argv[1:]:
        own, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(theirs, json.dumps(measure(name)).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(own) as file:
            found[name] = json.loads(file.read())
        os.waitpid(pid, 0)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
