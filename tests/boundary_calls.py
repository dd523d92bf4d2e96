"""Calls of services/rollcast that may wait for another process, machine or thread without a
deadline, found in the syntax tree.

A deadline is an argument of the call, an `asyncio.timeout` or `wait_for` around it, or a timeout of
the socket in the same function. Clients get theirs where they are made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.plainness.parsed import parsed

SOURCES = Path(__file__).parents[1] / "services" / "rollcast"
RPC_METHODS = frozenset(
    method
    for path in SOURCES.glob("wire/*_pb2_grpc.py")
    for method in re.findall(r"^        self\.(\w+) = channel\.", path.read_text(), re.MULTILINE)
)
"""Names of the calls that proto/ defines."""
OWNERS = {
    "socket": re.compile(r"(^|[._])(connection|control|socket|requests|orders|woken|channel)$"),
    "pipe": re.compile(r"(^|[._])(stdin|stdout|stderr|buffer|pipe)$"),
    "store": re.compile(r"(^|[._])store$"),
    "lock": re.compile(r"(^|[._])(\w*lock|slots|room|places)$"),
    "stream": re.compile(r"(^|[._])(reader|stream|stdout|stderr|response|call|frames)$|^$"),
}
NAMES = {
    "socket": {"recv", "recv_into", "recvmsg", "accept", "sendall", "send", "sendmsg"},
    "pipe": {"read", "read1", "readline", "readlines", "write"},
    "store": {"check", "get", "set", "wait", "delete_key", "list_keys", "add"},
}
"""What waits for the other end, by the kind of what it is called on."""
UNIQUE_NAMES = {"recv", "recv_into", "recvmsg", "recv_bytes", "recv_fds", "accept", "sendall"}
"""Names that wait for the other end whatever they are called on."""
STREAM_READS = {"read", "readline", "readexactly", "readuntil"}
STREAM_WAITS = {"drain", "wait_closed", "receive"}
QUEUES = {"Queue", "LifoQueue", "PriorityQueue", "JoinableQueue"}
"""If one is bounded, its `put` waits."""
DOES_NOT_WAIT = re.compile(r"LOCK_NB|LOCK_UN|MSG_DONTWAIT|WNOHANG|blocking=False")
TIMEOUT_NAME = re.compile(r"timeout|patience|seconds")
TIMEOUT_PLACES = {
    **{"wait": 0, "join": 0, "get": 0, "acquire": 0, "result": 0, "wait_for": 1},
    **{"communicate": 1, "urlopen": 2, "opener.open": 2, "poll.poll": 0, "selector.select": 0},
    **{"select.select": 3, "asyncio.wait": None, "futures.wait": None, "waits.wait": 1},
    **{"subprocess.run": None, "subprocess.call": None, "subprocess.check_output": None},
    **{"subprocess.check_call": None, "httpx.Client": None, "httpx.AsyncClient": None},
    **{"httpx.stream": None, "httpx.get": None, "httpx.post": None, "httpx.request": None},
    **{"httpx2.AsyncClient": None, "aiohttp.ClientSession": None, "socket.create_connection": 1},
    **{"redis.Redis": None, "redis.asyncio.Redis": None, "sqlite3.connect": 1},
    **{"init_process_group": None, "new_group": None, "TCPStore": None, "rendezvous": None},
    **{"flock": None, "lockf": None, "waitpid": None, "waitid": None, "getaddrinfo": None},
}
"""Which argument is the timeout, besides one of that name; None = no other. The longest name that
the text of a call ends with counts."""
CALLS = {
    *(name.rpartition(".")[2] for name in TIMEOUT_PLACES),
    *(UNIQUE_NAMES | STREAM_READS | STREAM_WAITS | QUEUES | RPC_METHODS),
    *NAMES["socket"],
    *NAMES["pipe"],
    *NAMES["store"],
}
"""Names of all calls that are looked at."""


class BoundaryCall(NamedTuple):
    """A call without a deadline."""

    place: str
    """Module, class and function, below rollcast."""
    call: str
    """The text of what is called."""


class Finder(ast.NodeVisitor):
    """Collects the calls of one module."""

    def __init__(self, module: str) -> None:
        self.found: list[BoundaryCall] = []
        self._names = [module]
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._awaited: set[ast.expr] = set()
        self._num_deadlines = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        # A deadline around the definition is none of a call inside.
        num_deadlines = self._num_deadlines
        self._num_deadlines = 0
        self._functions.append(node)
        self._enter(node)
        self._functions.pop()
        self._num_deadlines = num_deadlines

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    def visit_Await(self, node: ast.Await) -> None:
        self._awaited.add(node.value)
        self.generic_visit(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item)
            text = ast.unparse(item.context_expr)
            if made := re.match(r"(subprocess\.)?Popen\(|ThreadPoolExecutor\(", text):
                self._note(f"with {made[0].rstrip('(')}")
        num_deadlines = sum(map(_is_deadline, node.items))
        self._num_deadlines += num_deadlines
        for statement in node.body:
            self.visit(statement)
        self._num_deadlines -= num_deadlines

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._note(f"async for {ast.unparse(node.iter)}")
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        text = ast.unparse(node.iter)
        if OWNERS["pipe"].search(text):
            self._note(f"for {text}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._may_wait(node):
            self._note(ast.unparse(node.func))
        is_deadline = _bounds_an_argument(node)
        self._num_deadlines += is_deadline
        self.generic_visit(node)
        self._num_deadlines -= is_deadline

    def _may_wait(self, call: ast.Call) -> bool:
        if _name(call) not in CALLS:
            return False
        target = ast.unparse(call.func)
        owner, _, name = target.rpartition(".")
        if name in QUEUES:
            return bool(call.args or call.keywords)
        if DOES_NOT_WAIT.search(ast.unparse(call)):
            return False
        if name in NAMES["store"] and OWNERS["store"].search(owner):
            return True
        if call in self._awaited and name in STREAM_READS | STREAM_WAITS:
            return bool(OWNERS["stream"].search(owner)) if name in STREAM_READS else not call.args
        if owner and name in RPC_METHODS:
            return not _has_timeout(call, None)
        if name == "write" and owner.startswith("sys."):
            return False
        for kind in ("socket", "pipe"):
            if name in UNIQUE_NAMES or (name in NAMES[kind] and OWNERS[kind].search(owner)):
                return not _has_timeout(call, None) and not self._sets_timeout()
        if target == "os.read":
            return not self._sets_timeout()
        ends = [end for end in TIMEOUT_PLACES if f".{target}".endswith(f".{end}")]
        ends += [end for end in TIMEOUT_PLACES if "." in end and target.endswith(end)]
        if not ends:
            return False
        end = max(ends, key=len)
        if name == "result" and self._functions and _is_async(self._functions[-1]):
            return False  # of a task of asyncio, where it never waits
        if name in ("get", "join") and owner in ("", "os.path", "shlex"):
            return False
        if name == "acquire" and call in self._awaited and not OWNERS["lock"].search(owner):
            return False  # a method of ours, whose own calls are looked at
        return not _has_timeout(call, TIMEOUT_PLACES[end])

    def _sets_timeout(self) -> bool:
        """Whether the function bounds the wait of a socket or a pipe, or looks first whether there
        is something to read.
        """
        return bool(self._functions) and any(
            isinstance(node, ast.Attribute)
            and node.attr in ("settimeout", "setblocking", "select", "poll")
            for node in ast.walk(self._functions[-1])
        )

    def _note(self, call: str) -> None:
        if not self._num_deadlines:
            self.found.append(BoundaryCall(".".join(self._names), call))


def _is_async(function: ast.AST) -> bool:
    return isinstance(function, ast.AsyncFunctionDef)


def _bounds_an_argument(call: ast.Call) -> bool:
    """Whether an argument is a wait, and another one its deadline."""
    if _name(call) not in ("wait_for", "wait", "within"):
        return False
    return len(call.args) + len(call.keywords) > 1 and ast.unparse(call.func).endswith(
        ("asyncio.wait_for", "waits.wait", "within")
    )


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _is_deadline(item: ast.withitem) -> bool:
    return ast.unparse(item.context_expr).startswith(("asyncio.timeout(", "asyncio.timeout_at("))


def _has_timeout(call: ast.Call, place: int | None) -> bool:
    """Whether an argument bounds the wait: by its name, or at this place."""
    values: Sequence[ast.expr] = [
        keyword.value
        for keyword in call.keywords
        if keyword.arg is None or TIMEOUT_NAME.search(keyword.arg)
    ]
    if place is not None:
        values = [*values, *call.args[place : place + 1]]
    # True: that a queue is to wait
    return any(
        not (isinstance(value, ast.Constant) and (value.value is None or value.value is True))
        for value in values
    )


def calls_without_deadline(module: str, tree: ast.Module) -> list[BoundaryCall]:
    finder = Finder(module)
    finder.visit(tree)
    return finder.found


def services_calls() -> Iterator[BoundaryCall]:
    """Those of services/rollcast, except code that protoc made."""
    for path in sorted(SOURCES.rglob("*.py")):
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
            yield from calls_without_deadline(module, parsed(path))
