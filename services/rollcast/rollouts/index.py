"""The records of :inflight, one for every task that was dispatched and not settled.

Text, because the scripts write and read them (and so can a person with redis-cli):

    waiting   attempt purpose stream_id first_version|-
    claimed   attempt purpose stream_id first_version claimed_at owner
    finished  attempt purpose rollouts_id first_version num_bytes owner task_stream_id
    dead      attempt purpose dead_id reason
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcast.rollouts.base import Dead, Finished, Outstanding, Waiting
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import Claim, Purpose
from rollcast.wire.version import PolicyVersion

NO_VERSION = "-"


def version_text(version: PolicyVersion | None) -> str:
    return NO_VERSION if version is None else str(version)


def outstanding(records: Iterable[tuple[bytes, bytes]]) -> Outstanding:
    """Sort (sequence, record) pairs by what became of the task. Raises CodecError."""
    result = Outstanding()
    for key, value in records:
        try:
            _add(result, int(key), value.decode())
        except (ValueError, IndexError) as error:
            raise CodecError(f"record of task {key!r} in :inflight: {value[:200]!r} cannot be read") from error
    return result


def _add(result: Outstanding, sequence: int, record: str) -> None:
    state, attempt_text, purpose_text, stream_id, rest = record.split(" ", 4)
    attempt, purpose = int(attempt_text), Purpose(purpose_text)
    if state == "dead":
        result.dead[sequence] = Dead(attempt, purpose, stream_id, rest)
        return
    words = rest.split(" ")
    if state == "waiting":
        version = None if words[0] == NO_VERSION else PolicyVersion.parse(words[0])
        result.waiting[sequence] = Waiting(attempt, purpose, stream_id, version)
    elif state == "claimed":
        result.claims[sequence] = Claim(
            owner=words[2],
            first_version=PolicyVersion.parse(words[0]),
            attempt=attempt,
            stream_id=stream_id,
            claimed_at=float(words[1]),
            purpose=purpose,
        )
    elif state == "finished":
        result.finished[sequence] = Finished(
            attempt=attempt,
            purpose=purpose,
            stream_id=stream_id,
            first_version=PolicyVersion.parse(words[0]),
            owner=words[2],
            num_bytes=int(words[1]),
        )
    else:
        raise ValueError(state)
