"""Files and folders of other frameworks' runs that are written while they are read.

A look at a file that has changed reads all of it, as `rollcast fit` does, and returns all of its
evaluations again.
"""

import os
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.columns.curve_sheet import curve_sheet
from rollcast.curves.columns.pass_rate_range import refuse_outside
from rollcast.curves.evaluations import CurvePoint, Origin, Reading, validate_evaluation
from rollcast.curves.formats.recognise import read_sheet
from rollcast.curves.outcomes import average_outcomes
from rollcast.curves.run_evaluations import read_run_evaluations
from rollcast.curves.separate_runs import separate_runs
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.prometheus_reader import SourceAway

MAX_BYTES_PER_SECOND = 5 << 20
"""Read of one file on average, so that a long one that changes all the time takes a tenth of a
core: 64 MiB are read again after 13 seconds."""
Signature = tuple[tuple[str, int, int], ...]
log = get_logger()


class CurveFiles:
    """The files of several runs. One that is missing does not keep the others from being read."""

    def __init__(self, curves: tuple[CurveFile, ...]) -> None:
        self._files = [CurveFileReader(curve) for curve in curves]

    def read(self) -> Reading:
        """One look at each file. Raises SourceAway: none of them can be read."""
        reading = Reading()
        failures = []
        for file in self._files:
            try:
                file_reading = file.read()
            except SourceAway as error:
                failures.append(error)
                continue
            reading.evaluations += file_reading.evaluations
            reading.starts.update(file_reading.starts)
            reading.origins.update(file_reading.origins)
            reading.replaced_runs |= file_reading.replaced_runs
            reading.skipped += file_reading.skipped
        if len(failures) == len(self._files):
            raise failures[0]
        reading.skipped["file_away"] += len(failures)
        reading.away += map(str, failures)
        return reading

    def close(self) -> None:
        """Nothing is kept open."""


class CurveFileReader:
    """One file or folder."""

    def __init__(self, settings: CurveFile) -> None:
        self._settings = settings
        column_settings = settings.model_dump(include={field.name for field in fields(Columns)})
        self._columns = Columns(**column_settings, in_run_file=True)
        self._signature: Signature = ()
        self._not_before = 0.0
        """When the file may be read again, by the monotonic clock."""
        self._origin: Origin | None = None
        """None before an evaluation was found."""
        self._failure = ""
        """The reason why the last look found no curve."""
        self._logged_sentences: set[str] = set()
        self._skipped: Counter[str] = Counter()
        """Evaluations that the last look left out. The next look leaves them out too, but counts
        only new ones."""

    def read(self) -> Reading:
        """All evaluations of a file that has changed, else none.

        Raises:
            SourceAway: there is no file yet, no evaluation in it, or which of its columns are meant
            is not clear.
        """
        name = self._settings.run
        path = self._settings.path
        if not path.exists():
            raise SourceAway(f"run {name!r}: there is no file {path} yet")
        signature = _signature(path)
        reading = Reading()
        if signature != self._signature and time.monotonic() >= self._not_before:
            # Set before the read: a file that cannot be read is not read again until it changes.
            self._signature = signature
            self._not_before = (
                time.monotonic() + sum(size for _, size, _ in signature) / MAX_BYTES_PER_SECOND
            )
            self._failure = ""
            try:
                reading = self._read()
            except (UserError, ValueError) as error:
                self._failure = f"run {name!r}: {error}"
        if self._failure:
            raise SourceAway(self._failure)
        if self._origin is not None:
            reading.origins[name] = self._origin
        return reading

    def _read(self) -> Reading:
        """Raises UserError, ValueError."""
        name = self._settings.run
        path = self._settings.path
        now_seconds = time.time()
        sheet = read_sheet(str(path), self._say, is_growing=True)
        try:
            curve = average_outcomes(curve_sheet(sheet, self._columns, None, self._say), self._say)
            curve = separate_runs(curve, self._say, is_one=True)
            run_evaluations = read_run_evaluations(curve, name, now_seconds)
            rates = run_evaluations.points.columns["pass_rate"]
            refuse_outside(rates, curve)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        complaint = run_evaluations.complaint
        skipped = Counter(bad_line=run_evaluations.num_malformed + run_evaluations.num_unknown)
        by_key: dict[tuple[str, int, int], CurvePoint] = {}
        for point in run_evaluations.points:
            try:
                # Only checked: impossible values are already unknown in these columns.
                validate_evaluation(point)
            except ValueError as error:
                complaint = complaint or str(error)
                skipped["bad_line"] += 1
                continue
            skipped["duplicate"] += point.key in by_key
            by_key.setdefault(point.key, point)
        if not by_key:
            raise UserError(
                f"no evaluation in {path} yet" + (f"; {complaint}" if complaint else "")
            )
        reading = Reading(list(by_key.values()), skipped=skipped - self._skipped)
        self._skipped = skipped
        self._origin = curve.origin
        reading.starts[name] = run_evaluations.starts
        # If an evaluation of an earlier look is missing now, the engine takes the file for that of
        # another run.
        reading.replaced_runs.add(name)
        return reading

    def _say(self, sentence: str) -> None:
        """Log a sentence once, however often the file is read."""
        if sentence not in self._logged_sentences:
            self._logged_sentences.add(sentence)
            log.info(sentence, run=self._settings.run)


def _signature(path: Path) -> Signature:
    """Names, sizes and times of a file, or of the files in a folder. They differ after a change."""
    file_states = []
    # Files of a folder by whose sizes and times a change is noticed
    for file in [path] if path.is_file() else sorted(path.rglob("*"))[:10_000]:
        try:
            status = os.stat(file)
        except OSError:  # removed in between
            continue
        file_states.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(file_states)
