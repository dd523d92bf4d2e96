"""What a run's folder tells: its evaluations."""

from __future__ import annotations

import time
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.evaluations import CurvePoint, EvaluationLog, checked
from rollcast.curves.reading import Reading
from rollcast.curves.run_history import RunHistory
from rollcast.runfolder.files import EVALUATIONS
from rollcast.runfolder.format_version import check_format
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord
from rollcast.telemetry.names import is_own_curve


class RunFolder:
    """Read from where the last look ended."""

    def __init__(self, folder: Path, run: str) -> None:
        """`run`: of evaluations that name none."""
        self._run = run
        self._file = RecordFile(folder / EVALUATIONS, EvaluationRecord)
        self._told = 0

    def read(self) -> Reading:
        """New complete lines; nothing where there is no file."""
        reading, now = Reading(), time.time()
        for record in self._file.read():
            try:
                reading.evaluations.append(evaluation_of(record, self._run, now))
            except ValueError:
                reading.skipped["out_of_bounds"] += 1
        if new := self._file.num_skipped - self._told:
            reading.skipped["bad_line"] += new
            self._told += new
        return reading


def history_of_folder(folder: Path, run: str) -> tuple[RunHistory, int]:
    """The run's own curve, and the number of lines that are malformed.

    Raises UserError where the folder is of a newer format, or holds no evaluation after the first step.
    """
    check_format(folder)
    reading = RunFolder(folder, run).read()
    log = EvaluationLog(limit=len(reading.evaluations))
    for item in reading.evaluations:
        if is_own_curve(item.dataset):
            log.add(item)
    kept = log.surviving()
    if not any(item.step > 0 and item.compute > 0 for item in kept):
        raise UserError(f"run folder {folder}: holds no evaluation after the first step; train it for longer")
    return RunHistory(run, kept), reading.skipped.total()


def evaluation_of(record: EvaluationRecord, run: str, now: float) -> CurvePoint:
    """`run`, `now`: of a record that tells none. Raises ValueError where a value is out of bounds."""
    return checked(
        CurvePoint(
            run=record.run or run,
            dataset=record.dataset,
            incarnation=record.incarnation,
            step=record.step,
            pass_rate=record.pass_rate,
            compute=record.compute_device_hours,
            standard_error=record.standard_error,
            trained_tokens=record.trained_tokens,
            samples=record.samples,
            at=now if record.at is None else record.at,
            truncation_ratio=record.truncation_ratio,
            start_up=record.start_up_device_hours,
            devices=record.devices,
        )
    )
