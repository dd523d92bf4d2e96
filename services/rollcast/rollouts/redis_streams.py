"""The parts that both ends of wire 1 over Redis streams share. `base` describes the calls; the
atomic ones are the scripts in lua/.

A claim, its record in :inflight and everything that happens to a task later are one script each, so
`:inflight` is true at every moment. A reply that got lost on the way is found again: whoever reads
compares how many entries are pending under its name with how many it knows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources

from redis.exceptions import ResponseError

from rollcast.config.connections import Redis as RedisSettings
from rollcast.rollouts import index
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.outage import Outage
from rollcast.rollouts.records import RolloutGroup

_REBUILDING = frozenset({"snapshot", "dispatch"})
"""Scripts that first check :inflight against the streams."""


@cache
def script_source(name: str) -> str:
    """Return the text of one Lua script, with the parts that it shares with others.

    Each takes every key of the run, in the order of `Keys.all`, and runs atomically.
    """
    parts = ["append", "entries", *(["rebuild"] if name in _REBUILDING else []), name]
    folder = resources.files("rollcast.rollouts") / "lua"
    return "\n".join(
        (folder / f"{part_name}.lua").read_text(encoding="utf-8") for part_name in parts
    )


class RedisQueueEnd:
    """One end of wire 1."""

    def __init__(self, settings: RedisSettings, run: str, patience_seconds: float) -> None:
        self._keys = Keys(run, settings.scope)
        self._longest_block = settings.timeout_seconds / 2
        self._outage = Outage(patience_seconds)
        self.unknown_fields = 0

    @property
    def away_seconds(self) -> float:
        return self._outage.seconds

    def _count_unknown(self, count: int) -> None:
        self.unknown_fields += count


@contextmanager
def may_exist() -> Iterator[None]:
    """A consumer group that is there already is as good as a new one."""
    try:
        yield
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def told_by(group: RolloutGroup) -> dict[bytes, str]:
    """Fields of a group's entry that repeat its content."""
    return {
        b"s": str(group.sequence),
        b"a": str(group.attempt),
        b"p": group.purpose.value,
        b"v": index.version_text(group.first_version),
        b"o": group.generator,
    }
