"""docs/reliability.md against the code: every call without a deadline is listed with what ends it,
and every link's deadline is that of its setting or constant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from lab.plainness.parsed import parsed
from tests.boundary_calls import SOURCES, BoundaryCall, calls_without_deadline, services_calls

DOCS = SOURCES.parents[1] / "docs"
PAGE = (DOCS / "reliability.md").read_text()
LINKS, _, CALLS = PAGE.partition("## Calls without a deadline")
SETTINGS = re.findall(
    r"^\| `([^`]+)`(?: \([^)]+\))? \| `([\d.]+)` \|",
    (DOCS / "reference/settings.md").read_text(),
    re.MULTILINE,
)
"""Settings of the run file that are numbers, with their defaults; of some, one for each kind."""


def listed_calls() -> list[BoundaryCall]:
    rows = re.findall(r"^\| `([\w.]+)` \| (`.+?`) \| [^|]+ \| [^|]+ \|$", CALLS, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| `", CALLS, re.MULTILINE)), "a row has another form"
    return [
        BoundaryCall(place, call)
        for place, calls in rows
        for call in re.findall(r"`([^`]+)`", calls)
    ]


def test_every_call_without_a_deadline_is_listed_and_every_listed_one_is_there() -> None:
    listed = listed_calls()
    assert len(listed) == len(set(listed)), "a call is listed twice"
    found = set(services_calls())
    assert sorted(found - set(listed)) == [], (
        "give the call a deadline, or list it in docs/reliability.md with what ends it"
    )
    assert sorted(set(listed) - found) == [], "remove the call from docs/reliability.md"


def definitions(place: str) -> Iterator[ast.AST]:
    """The module, class, function or constant of that name below rollcast."""
    names = place.split(".")
    for length in range(len(names), 0, -1):
        path = SOURCES.joinpath(*names[:length]).with_suffix(".py")
        if path.is_file():
            yield from members(parsed(path), names[length:])


def members(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    if not names:
        yield node
        return
    for child in getattr(node, "body", ()):
        target = getattr(child, "target", None) or (getattr(child, "targets", None) or [None])[0]
        if names[0] in (getattr(child, "name", None), getattr(target, "id", None)):
            yield from members(child, names[1:])


def numbers(name: str) -> set[float]:
    """The defaults of a setting, or the value of a constant of the code."""
    if defaults := {float(value) for setting, value in SETTINGS if setting == name}:
        return defaults
    (definition,) = definitions(name)
    assert isinstance(definition, ast.Assign | ast.AnnAssign), name
    assert isinstance(definition.value, ast.Constant), name
    return {float(str(definition.value.value))}


def test_links_have_the_deadlines_of_the_code() -> None:
    rows = re.findall(r"^\| .+ \| .+ \| (.*) \| .+ \| .+ \|$", LINKS, re.MULTILINE)
    places = [place.strip("` ") for place in rows[1:] if place.strip()]
    assert len(places) > 30
    assert [place for place in places if not list(definitions(place))] == []
    deadlines = re.findall(r"([\d.]+) s \(`([^`]+)`\)", LINKS)
    assert len(deadlines) > 20
    wrong = {
        name: numbers(name) for seconds, name in deadlines if float(seconds) not in numbers(name)
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "call",
    [
        "process.wait()",
        "process.communicate(data)",
        "subprocess.run(command)",
        "thread.join()",
        "future.result()",
        "jobs.get()",
        "jobs.get(True)",
        "Queue(5)",
        "event.wait(timeout=None)",
        "changed.wait_for(is_due)",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "connection.recv(10)",
        "sock.recv(10)",
        "listener.accept()",
        "socket.recv_fds(control, 16, 1)",
        "os.read(descriptor, 10)",
        "process.stdout.readline()",
        "stub.Sync(request)",
        "redis.Redis(host)",
        "httpx.Client()",
        "urllib.request.urlopen(url)",
        "dist.init_process_group('gloo')",
        "self.store.check([key])",
        "await reader.readexactly(4)",
        "await writer.drain()",
        "await slots.acquire()",
        "await asyncio.wait({task})",
    ],
)
def test_a_call_without_a_deadline_is_seen(call: str) -> None:
    (found,) = calls_without_deadline(
        "m",
        ast.parse(f"async def f():\n    {call}" if "await" in call else f"def f():\n    {call}"),
    )
    assert found.place == "m.f"


@pytest.mark.parametrize(
    "call",
    [
        "process.wait(5.0)",
        "process.communicate(data, timeout=5.0)",
        "thread.join(5.0)",
        "', '.join(names)",
        "numbers.get(name)",
        "stub.Sync(request, timeout=5.0)",
        "connection.settimeout(5.0); connection.recv(10)",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "await asyncio.wait({task}, timeout=5.0)",
        "await asyncio.wait_for(reader.readexactly(4), 5.0)",
        "async with asyncio.timeout(5.0): await reader.readexactly(4)",
    ],
)
def test_a_call_with_a_deadline_is_not(call: str) -> None:
    kind = "async def" if "await" in call else "def"
    assert calls_without_deadline("m", ast.parse(f"{kind} f():\n    {call}")) == []


def test_a_deadline_around_a_definition_is_none_inside() -> None:
    code = "async def f():\n async with asyncio.timeout(1):\n  async def g(): await queue.get()"
    assert calls_without_deadline("m", ast.parse(code)) == [BoundaryCall("m.f.g", "queue.get")]
