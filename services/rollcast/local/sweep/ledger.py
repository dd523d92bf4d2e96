"""The ledger of a sweep: compute spent, the cost of a pause, and runs that have failed.

Its file, sweep.jsonl, is only appended to. A sweep that is killed leaves a slice without an end;
the next one closes it. What the runs have learned is in their own folders.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rollcast.runfolder.files import SWEEP
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import as_json
from rollcast.runfolder.sweep_records import SliceEnding, SweepLine
from rollcast.runfolder.writing import append_line


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    ending: SliceEnding
    stop_seconds: float | None = None
    """Time from the request to pause to the end; None without a request."""
    error: str | None = None


@dataclass(slots=True)
class SweepLedger:
    path: Path
    lines: list[SweepLine] = field(default_factory=list)
    num_skipped: int = 0
    """Lines of the file that cannot be read."""
    opened_at: float = field(default_factory=time.time)
    """Unix seconds: when the sweep was started now."""

    @classmethod
    def open(cls, folder: Path) -> "SweepLedger":
        file = RecordFile(folder / SWEEP, SweepLine)
        return cls(folder / SWEEP, list(file.read()), file.num_skipped)

    def append(self, line: SweepLine) -> None:
        """Raises UserError if the disk refuses."""
        values = {name: value for name, value in as_json(line).items() if value is not None}
        append_line(self.path, values, go_on="the same command")
        self.lines.append(line)

    def begin(self, run: str, goal: float) -> None:
        self.append(SweepLine("slice", time.time(), run, goal))

    def end(
        self,
        run: str,
        outcome: SliceOutcome,
        device_hours: float,
        start_device_hours: float | None = None,
        stop_device_hours: float | None = None,
    ) -> None:
        self.append(
            SweepLine(
                "end",
                time.time(),
                run,
                device_hours=device_hours,
                start_device_hours=start_device_hours,
                stop_device_hours=stop_device_hours,
                ending=outcome.ending,
                error=outcome.error,
            )
        )

    @property
    def open_slice(self) -> SweepLine | None:
        """The slice whose end is not recorded: the sweep was killed in it."""
        slices = [line for line in self.lines if line.event != "choice"]
        return slices[-1] if slices and slices[-1].event == "slice" else None

    @property
    def device_hours(self) -> float:
        """Spent on all slices that have ended, with starts, stops and lost work."""
        return sum(line.device_hours or 0.0 for line in self.lines)

    def run_device_hours(self, run: str) -> float:
        return sum(line.device_hours or 0.0 for line in self.lines if line.run == run)

    @property
    def num_pauses(self) -> int:
        return sum(line.stop_device_hours is not None for line in self.lines)

    def pause_device_hours(self, new_starts: Sequence[float] = ()) -> float:
        """Measured cost of pausing one run and resuming another: from the request to stop to the
        first step after the start. 0 before the first start.

        `new_starts`: of slices that have not ended.
        """
        starts = [line.start_device_hours for line in self.lines if line.start_device_hours]
        starts += new_starts
        stops = [line.stop_device_hours for line in self.lines if line.stop_device_hours]
        return sum(median(costs) for costs in (starts, stops) if costs)

    def failure(self, run: str) -> str | None:
        """Why the run is left out: it failed twice in a row by its own doing. None = it may run."""
        last_two = self._judged_ends(run)[-2:]
        if len(last_two) == 2 and all(line.ending is SliceEnding.FAILED for line in last_two):
            return last_two[-1].error or "it died"
        return None

    def is_retried(self, run: str) -> bool:
        """Whether a run that is left out has not failed since the sweep was started now: the cause
        may have been removed, so it is tried once more.
        """
        return self._judged_ends(run)[-1].at < self.opened_at

    def _judged_ends(self, run: str) -> list[SweepLine]:
        judged = (SliceEnding.PAUSED, SliceEnding.FAILED)
        return [line for line in self.lines if line.run == run and line.ending in judged]
