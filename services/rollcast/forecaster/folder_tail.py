"""The newest records in the run's folder that the live page shows besides the forecast: samples,
and the last step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rollcast.recorded.recorded_index import RecordedIndex
from rollcast.runfolder import files
from rollcast.runfolder.event_log import RunEvent, read_events
from rollcast.runfolder.record_file import newest_lines
from rollcast.runfolder.records import Record, StepRecord, parse
from rollcast.runfolder.samples import SamplesRecord

MAX_SAMPLES_BYTES = 4 << 20
"""Bytes at the end of the file that one look reads; an evaluation's samples take some 100 kB at
most."""
MAX_EVALUATIONS = 8
"""Newest evaluations with samples in one answer."""


@dataclass(frozen=True)
class FolderTail:
    """Read at each question: pages ask seldom.

    A file that is missing or cannot be read holds nothing.
    """

    run: str
    """The one run whose folder this forecaster has."""
    folder: Path

    def samples(self) -> list[SamplesRecord]:
        """The newest evaluations' samples, newest first."""
        newest = _newest_first(self.folder / files.SAMPLES, SamplesRecord, MAX_SAMPLES_BYTES)
        return list(islice(newest, MAX_EVALUATIONS))

    def recorded_steps(self) -> tuple[str, list[int]]:
        """The run's folder, and the steps that the flight recorder has kept there."""
        entries = RecordedIndex.read(self.folder).steps
        # A page of a run that is over is served from links to its folder.
        run_folder = (self.folder / files.RECORDED).resolve().parent
        return str(run_folder), sorted({entry.step for entry in entries})

    def events(self) -> list[RunEvent]:
        """The newest events, newest first."""
        # As many as a person reads
        return read_events(self.folder)[-20:][::-1]

    def step(self) -> StepRecord | None:
        """The newest optimizer step."""
        # Enough for the last steps, a kilobyte each
        return next(_newest_first(self.folder / files.STEPS, StepRecord, 64 << 10), None)


def _newest_first(path: Path, kind: type[Record], max_bytes: int) -> Iterator[Record]:
    """Records of whole lines in the last `max_bytes` bytes; lines
    that are no records are left out.
    """
    for line in newest_lines(path, max_bytes):
        try:
            yield parse(line, kind)
        except ValueError:
            continue
