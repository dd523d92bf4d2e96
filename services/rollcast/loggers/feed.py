"""The records of a run folder in the order in which they were made, from the end of the last
reading.

The folder is the queue: entries that a destination has not taken wait on the disk. Memory holds at
most one reading of each file (16 MiB).
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rollcast.loggers.entries import (
    Entry,
    make_evaluation_entry,
    make_forecast_entry,
    make_samples_entry,
    make_step_entry,
)
from rollcast.runfolder import files
from rollcast.runfolder.folder import check_format
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, ForecastRecord, StepRecord
from rollcast.runfolder.samples import SamplesRecord


class Feed:
    """The records of a run, as entries."""

    def __init__(self, folder: Path, sent_lines: Mapping[str, int]) -> None:
        """`sent_lines`: lines of each file that an earlier process has sent.

        Raises UserError if this release cannot read the folder.
        """
        check_format(folder)
        self._newest_step = -1
        self._files: dict[str, tuple[RecordFile[Any], Callable[[Any], Entry]]] = {}
        for name, kind, make in (
            (files.STEPS, StepRecord, self._make_next_step_entry),
            (files.EVALUATIONS, EvaluationRecord, make_evaluation_entry),
            (files.SAMPLES, SamplesRecord, make_samples_entry),
            (files.FORECASTS_SAID, ForecastRecord, make_forecast_entry),
        ):
            self._files[name] = (
                RecordFile[Any](folder / name, kind, num_known=sent_lines.get(name, 0)),
                make,
            )

    @property
    def lines(self) -> dict[str, int]:
        """Lines of each file that were returned so far."""
        return {name: file.num_lines for name, (file, _) in self._files.items()}

    @property
    def num_unreadable(self) -> int:
        """Lines that were torn or foreign."""
        return sum(file.num_skipped for file, _ in self._files.values())

    def read(self) -> list[Entry]:
        """New entries, ordered by time."""
        new_entries = [entry for file, make in self._files.values() for entry in _new(file, make)]
        return sorted(new_entries, key=lambda entry: entry.at)

    def _make_next_step_entry(self, record: StepRecord) -> Entry:
        entry = make_step_entry(record, self._newest_step)
        self._newest_step = record.step
        return entry


def _new(file: RecordFile[Any], make: Callable[[Any], Entry]) -> Iterator[Entry]:
    """Entries of new records.

    Known ones are converted too, because they show which steps are repeated.
    """
    for record, is_new in file.read_some():
        entry = make(record)
        if is_new:
            yield entry
