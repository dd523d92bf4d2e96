"""What one trainer rank writes to the store: its rows of each version, whole or as changes.

    whole     the rows of a slot, which become the base
    changes   what turns the base into the rows of a slot, which become the base
    anchor    the base again, whole: for those that cannot use the changes

The base is a copy of its own, so that training fills the next slot meanwhile.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

from rollcast.connections.object_files import ObjectFolder
from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.staging import CPU, StagingSlots
from rollcast.weights.transport.checksum import checksum
from rollcast.weights.transport.stored_object import StoredObject, write_object
from rollcast.wire.version import PolicyVersion

ObjectKind = Literal["whole", "changes", "anchor"]
Result = TypeVar("Result")
log = get_logger()


@dataclass(frozen=True)
class WrittenObject:
    """An object, and the version that it was computed from: what a rank reports to rank 0."""

    stored: StoredObject
    base: PolicyVersion | None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "WrittenObject":
        values = json.loads(data)
        base = values["base"]
        return cls(StoredObject(**values["stored"]), PolicyVersion(*base) if base else None)


class RankStore:
    """Used by one thread."""

    def __init__(self, folder: ObjectFolder, rank: int, slots: StagingSlots) -> None:
        """Raises MemoryError if the base does not fit."""
        self.folder = folder
        self._rank = rank
        self._slots = slots
        self._base = Snapshot.on(CPU, slots.shard)

    def write(self, kind: ObjectKind, slot: int, version: PolicyVersion) -> WrittenObject:
        """Write an object of `version`, which `slot` holds, or the base if it is an anchor.

        Raises OSError; the base is then as before.
        """
        rows = self._base if kind == "anchor" else self._slots[slot]
        assert rows.version == version, (kind, rows.version, version)
        if rows.checksum is None:
            rows.checksum = checksum(rows.buffers, CPU)
        # No other object ever has this name, of whatever attempt or process.
        suffix = "changes" if kind == "changes" else "whole"
        name = f"{version}-{self._rank}-{secrets.token_hex(8)}.{suffix}"
        base = self._base if kind == "changes" else None
        stored = write_object(self.folder, name, rows, base, rows.checksum)
        written = WrittenObject(stored, None if base is None else base.version)
        if kind != "anchor":
            self._base.memory.copy_(rows.memory)
            self._base.checksum = rows.checksum
            self._base.version = version
        return written


def until_written(
    attempt: Callable[[], Result],
    is_stopping: Callable[[], bool],
    note_failure: Callable[[], None] = lambda: None,
) -> Result | None:
    """Repeat an attempt to write until it succeeds; None = stopped."""
    pause_seconds = 0.5
    while not is_stopping():
        try:
            return attempt()
        # Another version is in the slot by now: the order is out of date.
        except AssertionError:
            raise
        # Not OSError alone: without the object no version would ever be published.
        except Exception as error:
            log.warning(
                "the store of weights does not answer or has no room; trying again",
                reason=f"{type(error).__name__}: {error}",
                pause_seconds=pause_seconds,
            )
            note_failure()
        resume_at = time.monotonic() + pause_seconds
        while time.monotonic() < resume_at and not is_stopping():
            time.sleep(0.1)
        pause_seconds = min(2 * pause_seconds, 30.0)
    return None


def reply_key(version: PolicyVersion, kind: ObjectKind, rank: int) -> str:
    """Under which a rank answers an order to write."""
    return f"{version}-{rank}.{kind}"


def refusal_key(version: PolicyVersion, kind: ObjectKind, rank: int) -> str:
    """Under which a rank reports that the store refused the object, before it tries again.

    Who removes a refusal cannot remove the reply that follows it.
    """
    return f"{reply_key(version, kind, rank)}.refused"
