"""The records of :inflight, one for every task that was dispatched and is still on the queue.

Text, because the scripts write and read them (and so can a person with redis-cli):

    waiting   attempt purpose stream_id first_version|-
    claimed   attempt purpose stream_id first_version claimed_at owner
    finished  attempt purpose rollouts_id first_version num_bytes owner task_stream_id
    dead      attempt purpose dead_id reason

Any Redis client can write a record: one of another form than these is damaged.
"""

import re
from collections.abc import Iterable

from rollcast.rollouts.base import Dead, Finished, Outstanding, Waiting
from rollcast.rollouts.records import Claim, Purpose
from rollcast.wire.version import PolicyVersion

NO_VERSION = "-"

_SMALL = "(?:0|[1-9][0-9]{0,8})"
_COUNT = "(?:0|[1-9][0-9]{0,14})"
_VERSION = rf"{_SMALL}\.{_SMALL}"
_ID = "[0-9]{1,20}-[0-9]{1,20}"
_OWNER = r"[^\x00-\x20\x7f]+"
_HEAD = f"({_SMALL}) (train|eval) ({_ID}) "
_SEQUENCE = re.compile(_COUNT.encode())
_REST = {
    "waiting": re.compile(f"{_HEAD}({_VERSION}|{NO_VERSION})"),
    "claimed": re.compile(rf"{_HEAD}({_VERSION}) ([0-9]{{1,15}}\.[0-9]{{6}}) ({_OWNER})"),
    "finished": re.compile(f"{_HEAD}({_VERSION}) ({_COUNT}) ({_OWNER}) {_ID}"),
    "dead": re.compile(f"{_HEAD}(.*)", re.DOTALL),
}


def version_text(version: PolicyVersion | None) -> str:
    return NO_VERSION if version is None else str(version)


def outstanding(
    records: Iterable[tuple[bytes, bytes]],
) -> tuple[Outstanding, list[tuple[bytes, bytes]]]:
    """Sort (sequence, record) pairs by the state of the task; the unreadable ones are returned
    separately.
    """
    result = Outstanding()
    damaged = []
    for key, value in records:
        state, _, rest = value.decode(errors="replace").partition(" ")
        words = _REST[state].fullmatch(rest) if state in _REST else None
        if words is None or not _SEQUENCE.fullmatch(key):
            damaged.append((key, value))
        else:
            _add(result, int(key), state, *words.groups())
    return result, damaged


def _add(result: Outstanding, sequence: int, state: str, *words: str) -> None:
    attempt = int(words[0])
    purpose = Purpose(words[1])
    stream_id = words[2]
    match state, words[3:]:
        case "waiting", (version,):
            first = None if version == NO_VERSION else PolicyVersion.parse(version)
            result.waiting[sequence] = Waiting(attempt, purpose, stream_id, first)
        case "claimed", (version, claimed_at, owner):
            first = PolicyVersion.parse(version)
            result.claims[sequence] = Claim(
                owner, first, attempt, stream_id, float(claimed_at), purpose
            )
        case "finished", (version, num_bytes, owner):
            first = PolicyVersion.parse(version)
            result.finished[sequence] = Finished(
                attempt, purpose, stream_id, first, owner, int(num_bytes)
            )
        case "dead", (reason,):
            result.dead[sequence] = Dead(attempt, purpose, stream_id, reason)
