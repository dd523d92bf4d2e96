"""The records of a run folder in the order in which they were made, from where the last look ended.

The folder is the queue: what a destination has not taken yet waits on the disk, and nothing of it in memory but one
reading of each file (16 MiB at most).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rollcast.loggers.entries import Entry, of_evaluation, of_forecast, of_samples, of_step
from rollcast.runfolder import files
from rollcast.runfolder.growing_file import GrowingFile
from rollcast.runfolder.records import EvaluationRecord, ForecastRecord, SamplesRecord, StepRecord, parse


class Feed:
    """Attributes:
    num_unreadable: lines that were torn or foreign.
    """

    def __init__(self, folder: Path, taken: Mapping[str, int]) -> None:
        """`taken`: lines of each file that were told already, by an earlier process."""
        self._newest_step = -1
        self.num_unreadable = 0
        self._files: dict[str, tuple[GrowingFile, type[Any], Callable[[Any], Entry]]] = {
            files.STEPS: (GrowingFile(folder / files.STEPS), StepRecord, self._of_step),
            files.EVALUATIONS: (GrowingFile(folder / files.EVALUATIONS), EvaluationRecord, of_evaluation),
            files.SAMPLES: (GrowingFile(folder / files.SAMPLES), SamplesRecord, of_samples),
            files.FORECASTS_SAID: (GrowingFile(folder / files.FORECASTS_SAID), ForecastRecord, of_forecast),
        }
        self._taken = dict(taken)

    @property
    def lines(self) -> dict[str, int]:
        """Handed out so far, of each file."""
        return {name: file.num_lines for name, (file, _, _) in self._files.items()}

    def read(self) -> list[Entry]:
        """What is new, by the time when it was made."""
        found = [entry for name in self._files for entry in self._read(name)]
        return sorted(found, key=lambda entry: entry.at)

    def _read(self, name: str) -> Iterator[Entry]:
        file, kind, make = self._files[name]
        lines = file.next_lines()
        first = file.num_lines - len(lines)
        for place, line in enumerate(lines, start=first):
            if not line.strip():
                continue
            try:
                entry = make(parse(line, kind))
            except ValueError:
                self.num_unreadable += place >= self._taken.get(name, 0)
                continue
            if place >= self._taken.get(name, 0):
                yield entry
        if file.num_beginnings > 1:
            self._taken.pop(name, None)

    def _of_step(self, record: StepRecord) -> Entry:
        entry = of_step(record, self._newest_step)
        self._newest_step = record.step
        return entry
