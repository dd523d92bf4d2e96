"""The Redis users of a run, by role: each may use the run's keys, with the commands of its role.

No role may administer the server or name keys of others. A script runs with the rights of the user
that sends it, so the commands of a role's scripts are among its own. The embedded server, the chart
and the ACL lines of docs/kubernetes.md are made from this table.
"""

from typing import Literal

Role = Literal["trainer", "generator", "reader"]

_CONNECTION = ("ping",)
_SCRIPTS = ("evalsha", "script|load")
_READ = ("hget", "time", "xinfo|groups", "xpending", "xrange")
_MOVE_TASKS = (
    *("del", "hdel", "hincrby", "hset", "rename", "xack", "xadd", "xclaim", "xdel"),
    *("xgroup|create", "xreadgroup"),
)
"""Changes of keys that scripts of both ends make."""
_READ_INDEX = ("hexists", "hvals", "xlen")
_LOOK = ("hgetall", "xrevrange")
"""Reads of a whole run: `rollcast queue` has the rights of the process whose settings it reads."""

COMMANDS: dict[Role, tuple[str, ...]] = {
    "trainer": (
        *(*_CONNECTION, *_SCRIPTS, *_READ, *_READ_INDEX, *_LOOK, *_MOVE_TASKS),
        "xgroup|delconsumer",
    ),
    "generator": (*_CONNECTION, *_SCRIPTS, *_READ, *_LOOK, *_MOVE_TASKS, "xread"),
    # An exporter of Redis's own metrics, and a person who looks at a run.
    "reader": (
        *_CONNECTION,
        *_READ,
        *_READ_INDEX,
        *_LOOK,
        "hlen",
        "info",
        "latency|latest",
        "type",
    ),
}


def permissions(role: Role, keys: str) -> str:
    """ACL rules that a new user of this role needs; `keys`: pattern of the run's keys."""
    return " ".join((f"~{keys}", *(f"+{command}" for command in sorted(COMMANDS[role]))))
