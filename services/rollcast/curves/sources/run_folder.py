"""A run's folder: its evaluations, and the step from which each incarnation continued."""

import time
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.amounts import incomplete_points
from rollcast.curves.evaluations import (
    CurvePoint,
    EvaluationLog,
    Reading,
    RunHistory,
    validate_evaluation,
)
from rollcast.curves.sources.run_terms import with_terms
from rollcast.runfolder.files import BEFORE, EVALUATIONS, INCARNATIONS
from rollcast.runfolder.folder import check_format
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import (
    BeforeRecord,
    EvaluationRecord,
    IncarnationRecord,
    read_record,
)
from rollcast.telemetry.evaluation_metrics import is_own_curve

_SAME_NAMES = (
    "dataset", "incarnation", "step", "pass_rate", "standard_error", "trained_tokens", "samples",
    "truncation_ratio", "devices", "graded_share",
)  # fmt: skip
"""Fields of a point that a record has under the same name."""


class RunFolder:
    """Each look continues at the end of the last one."""

    def __init__(self, folder: Path, run: str) -> None:
        """`run`: the name for evaluations without one.

        Raises UserError if the folder has another format.
        """
        check_format(folder)
        self._folder = folder
        self._run = run
        self._open()

    def _open(self) -> None:
        self._evaluations = RecordFile(self._folder / EVALUATIONS, EvaluationRecord)
        self._incarnations = RecordFile(self._folder / INCARNATIONS, IncarnationRecord)
        self._num_reported_lines = 0
        self._runs: set[str] = set()

    def read(self) -> Reading:
        """The records in new complete lines, none without a file. If a file was replaced, all
        records of all files.

        The files belong together: the steps from which incarnations continued decide which
        evaluations survive.
        """
        reading = self._read()
        if self._evaluations.was_written_anew or self._incarnations.was_written_anew:
            replaced_runs = self._runs
            self._open()
            reading = self._read()
            reading.replaced_runs = replaced_runs
        return reading

    def _read(self) -> Reading:
        reading = Reading()
        now_seconds = time.time()
        for record in self._evaluations.read():
            run = record.run or self._run
            if record.started_from is not None:
                reading.starts.setdefault(run, {})[record.incarnation] = record.started_from
            try:
                reading.evaluations.append(make_point(record, run, now_seconds))
            except ValueError:
                reading.skipped["out_of_bounds"] += 1
        for began in self._incarnations.read():
            reading.starts.setdefault(self._run, {})[began.incarnation] = began.started_from
        if new := self._evaluations.num_skipped - self._num_reported_lines:
            reading.skipped["bad_line"] += new
            self._num_reported_lines += new
        self._runs |= reading.starts.keys() | {item.run for item in reading.evaluations}
        return reading


def history_of_folder(folder: Path, run: str | None) -> tuple[RunHistory, int, int]:
    """The run's own curve, the number of malformed lines, and the number of evaluations that a
    restart lost.

    `run`: must be the one whose evaluations are there; None = that one. If the run's data set was
    renamed on the way, the first name counts: evaluations under another name are another curve.

    Raises UserError: there are no evaluations, of another run, or none after the first step; or the
    folder is of a newer format.
    """
    # The path `.` has no name before it is resolved.
    name = folder.resolve().name
    if not (folder / EVALUATIONS).is_file():
        raise UserError(f"run folder {folder}: holds no {EVALUATIONS}; give the folder of one run")
    reading = RunFolder(folder, name).read()
    points = [item for item in reading.evaluations if is_own_curve(item.dataset)]
    if points:
        name = points[0].run
    if run not in (None, name):
        raise UserError(
            f"run folder {folder}: holds the run {name!r}, not {run!r}; leave --run out"
        )
    # A folder is read once, so the limit of a live page does not apply.
    log = EvaluationLog(starts=reading.starts.get(name, {}), limit=len(points))
    for item in points:
        if (item.run, item.dataset) == (name, points[0].dataset):
            log.add(item)
    sorted_log = log.sorted_out()
    if not any(item.step > 0 and item.compute > 0 for item in sorted_log.curve_points):
        incomplete = ""
        if sorted_log.num_incomplete:
            incomplete = f", apart from {incomplete_points(sorted_log.num_incomplete)}"
        raise UserError(
            f"run folder {folder}: holds no evaluation after the first step{incomplete}; train it "
            "for longer"
        )
    num_incomplete = sorted_log.num_incomplete
    history = RunHistory(name, sorted_log.curve_points, num_incomplete=num_incomplete)
    return with_terms(history, folder), reading.skipped.total(), sorted_log.num_lost


def read_start_record(folder: Path) -> BeforeRecord | None:
    """What the run began with; None if it is not recorded."""
    try:
        return read_record(folder / BEFORE, BeforeRecord)
    except (OSError, ValueError):
        return None


def make_point(record: EvaluationRecord, run: str, now_seconds: float) -> CurvePoint:
    """`now_seconds`: the time of a record without one.

    Raises ValueError if a value is out of bounds.
    """
    point = CurvePoint(
        run=run,
        compute=record.compute_device_hours,
        start_up=record.start_up_device_hours,
        at=now_seconds if record.at is None else record.at,
        **{name: getattr(record, name) for name in _SAME_NAMES},
    )
    return validate_evaluation(point)
