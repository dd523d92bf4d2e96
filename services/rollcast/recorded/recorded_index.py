"""The list of a run's recorded steps, `RUN/recorded/index.json`, and which of them a full recorder
keeps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.files import RECORDED
from rollcast.runfolder.records import STRICT, Count, Measured, read_record
from rollcast.runfolder.writing import replace_json

INDEX_FILE = "index.json"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One recorded step."""

    __pydantic_config__ = STRICT

    name: str
    """Name of its folder."""
    step: Count
    conditions: list[str]
    badness: Measured
    """How far beyond its bound the worst condition was; 0 = no condition."""
    num_bytes: Count
    """Without weights."""


@dataclass(frozen=True, slots=True)
class RecordedIndex:
    """index.json."""

    __pydantic_config__ = STRICT

    steps: list[IndexEntry] = field(default_factory=list)
    """Steps in the order in which they were written."""

    @classmethod
    def read(cls, run_folder: Path) -> RecordedIndex:
        """The index of a run; without steps if nothing was recorded, or if it cannot be read."""
        try:
            return read_record(run_folder / RECORDED / INDEX_FILE, cls)
        except (OSError, ValueError):
            return cls()

    def write(self, run_folder: Path) -> None:
        """Raises UserError if the disk refuses."""
        replace_json(run_folder / RECORDED / INDEX_FILE, asdict(self))

    def least_valuable(self) -> IndexEntry | None:
        """The step to remove first: never the newest, of the others the one with the least bad
        condition, the older of two. None = only the newest is left.
        """
        return min(self.steps[:-1], key=lambda item: (item.badness, item.step), default=None)


def find_step(run_folder: Path, step: str) -> Path:
    """Folder of a recorded step: "12", or "12-skipped" and "12-failed" for an update that made
    none. Raises UserError if it is not there.
    """
    if not run_folder.is_dir():
        raise UserError(f"RUN = {run_folder}: there is no such folder; give that of a run")
    folder = run_folder / RECORDED
    candidates = [folder / f"step-{step}{suffix}" for suffix in ("", "-skipped", "-failed")]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    recorded = [entry.name.removeprefix("step-") for entry in RecordedIndex.read(run_folder).steps]
    if not recorded:
        raise UserError(
            f"RUN = {run_folder}: no step is recorded; set record.every_steps or record.on in its "
            "run file"
        )
    raise UserError(f"--step {step}: is not recorded; choose among {', '.join(recorded)}")
