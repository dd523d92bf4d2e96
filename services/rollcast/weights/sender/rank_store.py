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
from functools import partial
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
    """An object, and the version that it was computed from."""

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

    def write_for_rank_0(
        self, kind: ObjectKind, slot: int, version: PolicyVersion, is_stopping: Callable[[], bool]
    ) -> None:
        """Write an object, and then the note by which rank 0 finds it."""
        written = until_written(partial(self.write, kind, slot, version), is_stopping)
        if written is not None:
            note = partial(self._write_note, note_name(version, kind, self._rank), written)
            until_written(note, is_stopping)

    def written_by(
        self, rank: int, kind: ObjectKind, version: PolicyVersion
    ) -> WrittenObject | None:
        """What another rank has written; None = nothing so far. Raises OSError."""
        data = self.folder.read_small(note_name(version, kind, rank))
        # In a folder a note may be seen while it is written: then it is not yet JSON.
        try:
            return None if data is None else WrittenObject.decode(data)
        except ValueError:
            return None

    def _write_note(self, name: str, written: WrittenObject) -> None:
        with self.folder.create(name) as file:
            file.write(written.encode())


def until_written(
    attempt: Callable[[], Result],
    is_stopping: Callable[[], bool],
    note_failure: Callable[[], None] = lambda: None,
) -> Result | None:
    """Repeat an attempt to write while the store refuses it; None = stopped."""
    pause_seconds = 0.5
    while not is_stopping():
        try:
            return attempt()
        except OSError as error:
            log.warning(
                "the store of weights does not answer or has no room; trying again",
                reason=str(error),
                pause_seconds=pause_seconds,
            )
            note_failure()
        resume_at = time.monotonic() + pause_seconds
        while time.monotonic() < resume_at and not is_stopping():
            time.sleep(0.1)
        pause_seconds = min(2 * pause_seconds, 30.0)
    return None


def note_name(version: PolicyVersion, kind: ObjectKind, rank: int) -> str:
    return f"{version}-{rank}.{kind}.json"
