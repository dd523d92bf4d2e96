"""The Lua scripts of wire 1. Each takes every key of the run, in the order of `Keys.all`, and runs atomically."""

from functools import cache
from importlib import resources

_REBUILDING = frozenset({"snapshot", "dispatch"})
"""Scripts that first check :inflight against the streams."""


@cache
def source(name: str) -> str:
    """Return the text of one script, with the parts that it shares with others."""
    parts = ["append", "entries", *(["rebuild"] if name in _REBUILDING else []), name]
    folder = resources.files("rollcast.rollouts") / "lua"
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
