"""Several runs one after another in one log without a column that names them.

    step 0 .. 70 | 40 .. 90            a restart: it goes back by less than the run, and the level
                                       continues
    step 0 .. 70 | 0 10 20 ..          another run, which starts at the beginning
    step 0 .. 70 | 40 .. 90            another run, too, if its level is not the one that the first
                                       had at step 40

`--run N` chooses one. The newest is taken without a question if no other has as many readings as a
forecast needs.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell, amount, format_count
from rollcast.curves.columns.choices import MAX_NAMES_IN_A_SENTENCE
from rollcast.curves.columns.compute_column import length_of_epoch
from rollcast.curves.columns.curve_sheet import CurveSheet
from rollcast.curves.columns.restarts import MAX_STRETCHES, Rows, is_unordered
from rollcast.curves.columns.units import COUNTS
from rollcast.curves.formats.titles import SEED
from rollcast.curves.run_evaluations import MADE_AGAIN
from rollcast.curves.sheet import RUN, Column, shorten_name
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS
from rollcast.scaling.law.curve import Array

COMPARED_READINGS = 3
"""First readings after a fall of the step that are compared with those before it."""


@dataclass(frozen=True)
class LoggedRun:
    """One of the runs of a log.

    Attributes:
        number: from 1, in the order of the log.
        title: the name that the log prints before it; empty without any.
        begin, end: its rows.
        counts: (k,) of its readings: steps, or what else the curve is drawn over.
        rates: (k,) its readings.
    """

    number: int
    title: str
    begin: int
    end: int
    counts: Array
    rates: Array

    @property
    def num_after_start(self) -> int:
        return int(np.sum(self.counts > 0))

    def is_called(self, name: str) -> bool:
        """Whether a user who writes this means the run, by its title or number."""
        return name in (self.title, str(self.number))

    def describe(self, counter: str) -> str:
        """A phrase for a list."""
        title = f"{shorten_name(self.title)}, " if self.title else ""
        readings = format_count(self.counts.size, "reading")
        steps = (
            f", {counter} {amount(float(self.counts.min()))} to {amount(float(self.counts.max()))}"
        )
        return f"{self.number} ({title}{readings}{steps if self.counts.size else ''})"


def separate_runs(curve: CurveSheet, tell: Tell, *, is_one: bool) -> CurveSheet:
    """The requested run of a log of several, or those with enough readings, with a column that
    names them.

    If none is requested, the newest is taken if it alone has enough readings, or if a page follows
    the log. `is_one`: several are refused. Raises UserError: which one is meant is not clear, or
    there is no such run.
    """
    if RUN in curve:
        return curve
    counter = curve.columns.counter
    counts = curve.counts
    evaluations = curve.evaluations
    _, is_told = curve["incarnation"].whole
    restart_rows: Rows = np.empty(0, dtype=np.int64)
    runs: list[LoggedRun] = []
    # A log with a column of incarnations states its restarts itself.
    is_stated = bool(evaluations.clashing_labels) or is_told.any()
    if not is_stated and not is_unordered(counts[np.isfinite(counts)]):
        restart_rows = curve.restarts
        runs = _logged_runs(curve, counts, restart_rows)
    if curve.wanted_run is None and not _are_clear(runs):
        return curve
    if len(runs) < 2:
        if curve.wanted_run is not None and not any(
            run.is_called(curve.wanted_run) for run in runs
        ):
            raise UserError(
                f"no row is left; check {curve.column_options.option('where')}, --run and the file"
            )
        return _without_redone(curve, counts, restart_rows, tell) if runs else curve
    # With a column of epochs, a counter that begins again in each was handled when the columns were
    # chosen.
    if curve.wanted_run is not None or evaluations.names_epochs or not _is_each_epoch(runs):
        return _chosen_runs(curve, runs, tell, is_one=is_one)
    tell(
        f"{counter} begins again {len(runs)} times while the level goes on, so it is counted on "
        "from each end"
    )
    return _counted_on(curve, runs)


def _chosen_runs(
    curve: CurveSheet, runs: list[LoggedRun], tell: Tell, *, is_one: bool
) -> CurveSheet:
    """The requested one of several runs, or those with enough readings. Raises UserError."""
    listed = "; ".join(
        run.describe(curve.columns.counter) for run in runs[:MAX_NAMES_IN_A_SENTENCE]
    )
    if len(runs) > MAX_NAMES_IN_A_SENTENCE:
        listed += "; .."
    in_run_file = curve.column_options.in_run_file
    option = f"{curve.column_options.option('where')} run=N" if in_run_file else "--run N"
    if curve.wanted_run is not None:
        chosen = [run for run in runs if run.is_called(curve.wanted_run)]
        if not chosen:
            raise UserError(
                f"--run {curve.wanted_run}: holds no such run, but these: {listed}; choose one "
                f"with {option}"
            )
        # Two runs may have one title, and the newer one is more likely to be meant.
        return _select_rows(curve, chosen[-1])
    is_newest_alone = all(run.num_after_start < MIN_LAW_POINTS for run in runs[:-1])
    # A live page cannot ask its user, so it follows the newest run.
    if is_newest_alone or in_run_file:
        num_lost = sum(run.counts.size for run in runs[:-1])
        tell(
            f"{format_count(num_lost, 'evaluation')} left out, {MADE_AGAIN} from the beginning; "
            f"{option} chooses one of {listed}"
        )
        return _select_rows(curve, runs[-1])
    if is_one:
        raise UserError(
            f"holds {len(runs)} runs one after another: {listed}; choose one with {option}"
        )
    return _with_names(curve, [run for run in runs if run.num_after_start >= MIN_LAW_POINTS])


def _logged_runs(curve: CurveSheet, counts: Array, restart_rows: Rows) -> list[LoggedRun]:
    """The runs of a log in its order, restarts joined to the run that they continue; none without a
    reading.

    `restart_rows`: the rows from which on it counts again.
    """
    if restart_rows.size > MAX_STRETCHES:
        return []
    rates = curve["pass_rate"].values
    stretches = [
        *zip([0, *restart_rows.tolist()], [*restart_rows.tolist(), counts.size], strict=True)
    ]
    runs: list[LoggedRun] = []
    for begin, end in stretches:
        rows = np.arange(begin, end)[np.isfinite(counts[begin:end]) & np.isfinite(rates[begin:end])]
        stretch = LoggedRun(
            len(runs) + 1, _title_before(curve, begin), begin, end, counts[rows], rates[rows]
        )
        if runs and not _is_another(runs[-1], stretch, counts):
            runs[-1] = _join_stretch(runs[-1], stretch)
        elif rows.size:
            runs.append(stretch)
    return runs


def _are_clear(runs: list[LoggedRun]) -> bool:
    """Whether few rows in no order cannot look like these runs: one has many readings, or all begin
    at one step.
    """
    start_counts = {float(run.counts[0]) for run in runs}
    return len(start_counts) < 2 or any(run.num_after_start >= MIN_LAW_POINTS for run in runs)


def _title_before(curve: CurveSheet, row: int) -> str:
    """The newest name that is printed before a row; empty without any."""
    return next((title for at, title in reversed(curve.sheet.titles) if at <= row), "")


def _is_another(run: LoggedRun, stretch: LoggedRun, counts: Array) -> bool:
    """Whether a stretch of a log is another run, and does not continue this one after a restart."""
    stretch_counts = counts[stretch.begin : stretch.end]
    stretch_counts = stretch_counts[np.isfinite(stretch_counts)]
    run_counts = counts[run.begin : run.end]
    first = float(stretch_counts[0])
    base = float(run_counts[np.isfinite(run_counts)][0])
    distinct = np.unique(stretch_counts)
    # The first reading of a run is at step 0 or, without an evaluation at the start, one interval
    # later.
    interval = float(np.median(np.diff(distinct))) if distinct.size > 1 else 0.0
    has_other_name = run.title != stretch.title and bool(run.title and stretch.title)
    if first <= max(base, interval) or (has_other_name and not stretch.title.startswith(SEED)):
        return True
    return _is_at_another_level(run, stretch)


def _is_at_another_level(run: LoggedRun, stretch: LoggedRun) -> bool:
    """Whether the first readings of a stretch depart from those
    that the run had at the same steps.
    """
    again = np.flatnonzero(stretch.counts <= run.counts.max(initial=-np.inf))[:COMPARED_READINGS]
    if again.size == 0 or min(run.counts.size, stretch.counts.size) < COMPARED_READINGS:
        return False
    order = np.argsort(run.counts, kind="stable")
    expected = np.interp(stretch.counts[again], run.counts[order], run.rates[order])
    difference = abs(float(np.mean(stretch.rates[again] - expected)))
    noise = max(_noise(run.rates[order]), _noise(stretch.rates))
    everything = np.concatenate((run.rates, stretch.rates))
    spread = float(everything.max() - everything.min())
    # Two levels are of two runs if they differ by five standard errors, and by a twentieth of the
    # range however little the readings vary.
    return difference > max(5.0 * noise * math.sqrt(2 / again.size), 0.05 * spread)


def _noise(rates: Array) -> float:
    """The standard deviation of readings about a smooth curve, from their second differences."""
    if rates.size < COMPARED_READINGS:
        return 0.0
    # The second difference of independent noise has 1 + 4 + 1 = 6 times its variance.
    return float(np.sqrt(np.mean(np.diff(rates, n=2) ** 2) / 6))


def _join_stretch(run: LoggedRun, stretch: LoggedRun) -> LoggedRun:
    """A run with the stretch that continues it in place of its readings from there on."""
    first = stretch.counts.min() if stretch.counts.size else np.inf
    keep = run.counts < first
    return replace(
        run,
        title=run.title or stretch.title,
        end=stretch.end,
        counts=np.concatenate((run.counts[keep], stretch.counts)),
        rates=np.concatenate((run.rates[keep], stretch.rates)),
    )


def _is_each_epoch(runs: list[LoggedRun]) -> bool:
    """Whether each run has the others' name, is as long, and continues the level at which the one
    before it ended.
    """
    # The last epoch may be unfinished, so only its beginning is compared.
    bounds = {(float(run.counts.min()), float(run.counts.max())) for run in runs[:-1]}
    if (
        len(bounds) > 1
        or runs[-1].counts.min() not in next(iter(bounds))
        or any(run.counts.size < 2 for run in runs)
    ):
        return False
    # A final reading may be one more
    if runs[-1].counts.size > runs[0].counts.size + 1 or len({run.title for run in runs}) > 1:
        return False
    departed = sum(
        abs(float(next_run.rates[0] - run.rates[-1])) for run, next_run in pairwise(runs)
    )
    returned = sum(abs(float(next_run.rates[0] - run.rates[0])) for run, next_run in pairwise(runs))
    # Counts begin again in each epoch if the level departs by less than this share of its departure
    # in another run
    return departed < 0.5 * returned


def _counted_on(curve: CurveSheet, runs: list[LoggedRun]) -> CurveSheet:
    """The sheet with a counter that continues instead of beginning again."""
    values = curve.counts.copy()
    length = max(length_of_epoch(values[run.begin : run.end]) for run in runs)
    for number, run in enumerate(runs):
        values[run.begin : run.end] += number * length
    rows = np.flatnonzero(np.isfinite(values))
    return curve | {curve.columns.counter: Column(rows, values[rows].tolist())}


def _without_redone(curve: CurveSheet, counts: Array, restart_rows: Rows, tell: Tell) -> CurveSheet:
    """Without readings that a log without whole steps holds again after a restart, as TRL's console
    of epochs does.

    Whole steps are sorted out by their incarnations.
    """
    has_steps = curve.columns.step is not None and bool(
        np.all(counts[np.isfinite(counts)] % 1 == 0)
    )
    if has_steps or not restart_rows.size or curve.columns.unit not in COUNTS:
        return curve
    is_redone = np.zeros(counts.size, dtype=bool)
    for begin in restart_rows.tolist():
        # Rows without a count (nan) are not redone: no comparison with nan is true.
        with np.errstate(invalid="ignore"):
            is_redone[:begin] |= counts[:begin] >= counts[begin]
    num_redone = int(np.sum(is_redone & curve["pass_rate"].is_given))
    tell(f"{format_count(num_redone, 'evaluation')} left out, {MADE_AGAIN}")
    return curve.only(~is_redone)


def _select_rows(curve: CurveSheet, run: LoggedRun) -> CurveSheet:
    rows = np.arange(curve.sheet.num_rows)
    return curve.only((rows >= run.begin) & (rows < run.end))


def _with_names(curve: CurveSheet, runs: list[LoggedRun]) -> CurveSheet:
    """The sheet with a column that names the run of each row, by its title if each has one of its
    own.
    """
    titles = {run.title for run in runs}
    has_own_titles = len(titles) == len(runs)
    rows = np.concatenate([np.arange(run.begin, run.end) for run in runs])
    fields: list[str] = []
    for run in runs:
        name = run.title if has_own_titles and run.title else str(run.number)
        fields += [name] * (run.end - run.begin)
    named = curve | {RUN: Column(rows, fields)}
    return named.only(np.isin(np.arange(curve.sheet.num_rows), rows))
