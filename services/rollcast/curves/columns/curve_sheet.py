"""The one decision which column of a log is which: by the user's choices, by names and by values.

`curve_sheet` is the entry. Whatever works on a log later asks the record that it returns for a
quantity, `pass_rate` or `incarnation`, and never looks at a column's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from rollcast.curves.amounts import Tell, amount, format_count
from rollcast.curves.columns.choices import (
    Columns,
    CurveColumns,
    check_seconds,
    curve_columns,
    named_columns,
    only_column,
    per_cent_by_name,
    requested_column,
    requested_rows,
    usual_columns,
)
from rollcast.curves.columns.compute_column import choose_compute
from rollcast.curves.columns.labels import Label, clashing_labels
from rollcast.curves.columns.pass_rate_column import choose_pass_rate
from rollcast.curves.columns.ratios import with_ratios
from rollcast.curves.columns.restarts import Rows, going_back, stray_rows
from rollcast.curves.columns.times import in_one_unit
from rollcast.curves.columns.units import COUNTS
from rollcast.curves.evaluations import Origin
from rollcast.curves.sheet import RUN, Column, Mask, Numbers, Sheet
from rollcast.scaling.law.curve import Array


@dataclass(frozen=True)
class CurveSheet:
    """The requested part of a sheet.

    Attributes:
        sheet: numbers in its column of compute.
        columns: those that hold the curve.
        column_options: what the user specified about the columns.
        wanted_run: the requested run if no column names the runs.
    """

    sheet: Sheet
    columns: CurveColumns
    column_options: Columns
    wanted_run: str | None = None

    def __getitem__(self, quantity: str) -> Numbers:
        """(n,) of which nothing is given if no column holds the quantity."""
        return self.sheet.numbers(self.columns.column_name(quantity))

    def only(self, keep: Mask) -> "CurveSheet":
        """The rows for which `keep` (n,) is true."""
        return replace(self, sheet=self.sheet.only(keep))

    def __contains__(self, quantity: str) -> bool:
        """Whether a column holds the quantity."""
        name = self.columns.column_name(quantity)
        return name is not None and self.sheet.column(name) is not None

    def __or__(self, columns: Mapping[str, Column]) -> "CurveSheet":
        """With more columns, or with other fields in some."""
        return replace(self, sheet=self.sheet | columns)

    @property
    def origin(self) -> Origin:
        """The columns and units as which the log was read."""
        columns = self.columns
        mapping = (self.column_options.scale, self.column_options.offset)
        return Origin(self.sheet.format, columns.compute, columns.pass_rate, columns.unit, *mapping)

    @property
    def counts(self) -> Array:
        """(n,) the numbers of the counter."""
        return self.sheet.numbers(self.columns.counter).values

    @property
    def restarts(self) -> Rows:
        """The rows, ascending, from which on the log counts again from an earlier place."""
        is_evaluation = np.isfinite(self["pass_rate"].values)
        return going_back(self.sheet, self.counts, is_evaluation)

    @property
    def stretches(self) -> Rows:
        """(m,) numbers, equal for rows of one run between two restarts; of rows with a pass rate
        and a compute, both finite.
        """
        compute = self["compute"].values
        is_known = np.isfinite(self["pass_rate"].values) & np.isfinite(compute)
        runs = list(compress(self.run_names, is_known))
        numbers = {run: number for number, run in enumerate(dict.fromkeys(runs))}
        # Rows of several runs may alternate, so a lower step in the next row is no restart.
        if len(numbers) > 1:
            return np.array([numbers[run] for run in runs], dtype=np.int64)
        is_restart = np.zeros(compute.size, dtype=np.int64)
        is_restart[going_back(self.sheet, compute, is_known)] = 1
        return np.asarray(np.cumsum(is_restart)[is_known])

    @property
    def strays(self) -> Rows:
        """Rows that fall back for a moment, as those of a line that a model quotes; none if columns
        name the runs or the incarnations.
        """
        if RUN in self or "incarnation" in self:
            return np.empty(0, dtype=np.int64)
        return stray_rows(self.sheet, self.counts, self["pass_rate"].is_given)

    @property
    def is_truth(self) -> bool:
        """Whether every pass rate is true or false, or yes or no."""
        column = self.sheet.column(self.columns.pass_rate)
        return column is not None and column.is_truth

    @property
    def run_names(self) -> list[str]:
        """(n,) the run of each row; an empty text if no column names it."""
        return self.sheet.texts(RUN)

    @property
    def compute_texts(self) -> list[str]:
        """(n,) the compute of each row as the log spells it."""
        return self.sheet.texts(self.columns.compute)

    @property
    def evaluations(self) -> "CurveSheet":
        """The rows with a pass rate."""
        return self.only(self["pass_rate"].is_given)

    @cached_property
    def clashing_labels(self) -> list[Label]:
        """The labels that differ between rows of equal compute, in a sheet of evaluations only."""
        return clashing_labels(self.sheet, self.columns.compute)

    @property
    def names_epochs(self) -> bool:
        return usual_columns(named_columns(self.sheet)).epoch is not None

    def runs(self) -> list[str]:
        """The runs that have an evaluation, in the order of the log; one without a name if no
        column names them.
        """
        names = compress(self.run_names, self["pass_rate"].is_given)
        return list(dict.fromkeys(names)) or [""]

    def select_run(self, run: str) -> "CurveSheet":
        """The rows of one run."""
        return self.only(np.array([name == run for name in self.run_names], dtype=bool))


def curve_sheet(sheet: Sheet, column_options: Columns, run: str | None, tell: Tell) -> CurveSheet:
    """The requested rows, and the columns that hold their curve. `run`: None = all runs.

    The callback receives sentences on a choice that is not obvious. Raises UserError: no row is
    left, or a column is missing or not clear, and what helps.
    """
    sheet = with_ratios(sheet)
    sheet, wanted_run = requested_rows(sheet, column_options, run)
    columns = named_columns(sheet)
    usual = usual_columns(columns)
    check_seconds(column_options)
    pass_rate = requested_column(columns, column_options, "pass_rate")
    if pass_rate is None:
        choice = choose_pass_rate(columns, usual.steps)
        pass_rate = only_column(choice.columns, columns, column_options, "pass_rate")
        if choice.notes:
            option = column_options.option("pass_rate")
            tell(f"{'; '.join(choice.notes)}; {option} chooses another column")
    compute_choice = choose_compute(columns, usual, columns[pass_rate], tell)
    sheet = compute_choice.sheet
    chosen = curve_columns(compute_choice, pass_rate, column_options, tell)
    rates = compute_choice.columns[pass_rate]
    if np.any(rates.numbers.per_cent):
        tell(f"per cent signs in {pass_rate}, read as parts of 1")
    elif small := per_cent_by_name(rates, column_options):
        tell(small)
    compute = compute_choice.columns[chosen.compute]
    # Plain numbers of steps or tokens need no conversion.
    is_plain = (
        chosen.unit in COUNTS and column_options.devices is None and not compute.is_written_out
    )
    if column_options.unit is None and not is_plain:
        sheet, unit = in_one_unit(compute, chosen.unit, column_options.devices, tell)
        chosen = replace(chosen, unit=unit)
    curve = CurveSheet(sheet, chosen, column_options, wanted_run)
    strays = curve.strays
    if not strays.size or curve.evaluations.clashing_labels:
        return curve
    first = amount(float(curve.counts[strays[0]]))
    tell(
        f"{format_count(strays.size, 'row')} left out, whose {chosen.counter} falls back for a "
        f"moment; the first is at {chosen.counter} {first}"
    )
    return curve.only(~np.isin(np.arange(sheet.num_rows), strays))
