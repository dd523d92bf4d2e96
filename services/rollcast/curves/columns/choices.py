"""Columns by their names: those that the user chooses, those with a usual name, and the questions
that remain.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.columns.named_column import NamedColumn, NamedColumns
from rollcast.curves.columns.units import STEPS
from rollcast.curves.columns.words import (
    CALL_COUNTER,
    COMPUTE_NAMES,
    EPOCH_NAMES,
    ERROR_PREFIX,
    EVALUATION_WORDS,
    PASS_RATE_NAMES,
    STANDARD_ERROR_NAMES,
    STEP_NAMES,
    TRUNCATION_NAMES,
)
from rollcast.curves.sheet import RUN, Sheet, shorten_name
from rollcast.telemetry.evaluation_metrics import is_own_curve

MAX_NAMES_IN_A_SENTENCE = 10
DATASET = "dataset"
"""Names the data set of a row in the logs of Rollcast."""
_SAME_NAMES = (
    RUN, "incarnation", "started_from", "trained_tokens", "samples", "devices", "num_prompts",
    "asked_prompts", "missing_prompts",
)  # fmt: skip
_OWN_NAMES = {
    "start_up": "start_up_device_hours",
    **dict(zip(_SAME_NAMES, _SAME_NAMES, strict=True)),
}
"""Quantity -> the column that holds it in the logs of Rollcast."""


@dataclass(frozen=True)
class Columns:
    """A user's choices about the columns of a file; None = recognised by their names.

    A Prometheus server takes expressions instead, each of one series.
    """

    compute: str | None = None
    pass_rate: str | None = None
    standard_error: str | None = None
    truncation_ratio: str | None = None
    where: tuple[str, ...] = ()
    """Conditions COLUMN=VALUE that a row must meet."""
    scale: float = 1.0
    """Times the pass rates, after `offset` was added, and times their standard errors."""
    offset: float = 0.0
    """Added to the pass rates before they are scaled: 1, with scale 0.5, maps rewards in [-1, 1] to
    [0, 1]."""
    seconds: str | None = None
    """Instead of `compute`: the column of the elapsed time, which `devices` converts into
    device-hours."""
    devices: float | None = None
    step: str | None = None
    """The column of the optimizer step."""
    time: str | None = None
    """The column of the Unix seconds of each evaluation."""
    unit: str | None = None
    """Unit of compute; its numbers are then taken as they are. None = from the name of
    the column."""
    in_run_file: bool = False
    """Whether these are settings of a run file, which sentences spell `pass_rate:`, or options:
    `--pass-rate`."""

    def option(self, name: str) -> str:
        """How a sentence spells one of these fields."""
        return f"{name}:" if self.in_run_file else f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class UsualColumns:
    """The columns that count a run by their names.

    Attributes:
        hours: with a usual name of compute, in the order in which they are looked for.
        steps: in the order in which they are looked for; W&B's counter of calls last.
        epoch: None without one.
    """

    hours: list[NamedColumn]
    steps: list[NamedColumn]
    epoch: NamedColumn | None


@dataclass(frozen=True)
class ComputeChoice:
    """The counters of a sheet, by names and values.

    Attributes:
        sheet: with counters that continue through the epochs.
        columns: all of that sheet.
        candidates: the ones that could be the compute, one if it is clear.
        restarted: counters that begin again in every epoch.
    """

    sheet: Sheet
    columns: NamedColumns
    candidates: list[str]
    restarted: Set[str]


@dataclass(frozen=True)
class CurveColumns:
    """The columns of a sheet that hold its curve; None: the sheet has no such column."""

    compute: str
    pass_rate: str
    standard_error: str | None
    truncation_ratio: str | None
    step: str | None
    time: str | None
    unit: str
    """Unit of compute."""

    @property
    def counter(self) -> str:
        """The column of what rises over the run: steps, or else compute."""
        return self.step or self.compute

    def column_name(self, quantity: str) -> str | None:
        """The column that holds a quantity of an evaluation; None if none does."""
        return _OWN_NAMES.get(quantity) or getattr(self, quantity)


def named_columns(sheet: Sheet) -> NamedColumns:
    """Every column of the sheet."""
    return {name: NamedColumn(name, sheet) for name in sheet.columns}


def find_columns(names: Iterable[str], wanted_names: Iterable[str]) -> list[str]:
    """The wanted columns that are among the names, as the file spells them.

    Upper and lower case are the same, unless two columns of the file differ in nothing else.
    """
    spellings = dict.fromkeys(names)
    # Reversed, so that of two spellings the first column of the file is found.
    folded = {name.casefold(): name for name in reversed(spellings)}
    return [
        name if name in spellings else folded[name.casefold()]
        for name in wanted_names
        if name.casefold() in folded
    ]


def find_column(names: Iterable[str], wanted_names: Iterable[str]) -> str | None:
    """The first of the wanted columns that is among the names; None if none is."""
    return next(iter(find_columns(names, wanted_names)), None)


def usual_columns(columns: NamedColumns) -> UsualColumns:
    """The counters among the columns."""
    usual_steps = find_columns(columns, STEP_NAMES)
    other_names = [
        name for name in columns if name not in usual_steps and columns[name].is_step_counter
    ]
    # A counter of evaluations may count 1, 2, 3 where others count optimizer steps.
    other_names.sort(key=lambda name: bool(columns[name].words & EVALUATION_WORDS))
    steps = sorted([*usual_steps, *other_names], key=lambda name: name.casefold() == CALL_COUNTER)
    epoch = find_column(columns, EPOCH_NAMES)
    return UsualColumns(
        [columns[name] for name in find_columns(columns, COMPUTE_NAMES)],
        [columns[name] for name in steps],
        None if epoch is None else columns[epoch],
    )


def requested_rows(
    sheet: Sheet, column_options: Columns, run: str | None
) -> tuple[Sheet, str | None]:
    """The rows that meet the conditions, and the requested run if no column names the runs.

    Raises UserError: there is no such row.
    """
    keep = np.ones(sheet.num_rows, dtype=bool)
    wanted_run: str | None = None
    for condition in [*column_options.where, *([] if run is None else [f"{RUN}={run}"])]:
        name, equals, value = condition.partition("=")
        if not equals:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
        # If no column names the runs, the places at which the log begins again number them later.
        if name.casefold() == RUN and not find_columns(sheet.columns, (RUN,)):
            wanted_run = value
        else:
            keep &= np.array([text == value for text in NamedColumn(name, sheet).texts], bool)
    # A log of Rollcast also holds parts of the prompts and downstream data sets, each a curve of
    # its own.
    is_chosen = any(condition.startswith(f"{DATASET}=") for condition in column_options.where)
    if not is_chosen and find_columns(sheet.columns, (DATASET,)):
        keep &= np.array([*map(is_own_curve, NamedColumn(DATASET, sheet).texts)], bool)
    if not keep.any() and not column_options.where and run is None:
        raise UserError("holds no evaluation yet")
    if not keep.any():
        raise UserError(
            f"no row is left; check {column_options.option('where')}, --run and the file"
        )
    return sheet.only(keep), wanted_run


def check_seconds(column_options: Columns) -> None:
    """Raises UserError unless seconds and devices are given together, and instead of compute."""
    seconds = column_options.seconds
    devices = column_options.devices
    if seconds is None and devices is None:
        return
    if seconds is None:
        raise UserError(
            f"--devices {devices:g}: needs --seconds, the column of the time that passed"
        )
    if column_options.compute is not None:
        raise UserError(f"--seconds {seconds}: --compute is given too; leave one of them out")
    if devices is None:
        raise UserError(f"--seconds {seconds}: needs --devices, to count device-hours")
    # 1e7: more than any run has had; a larger number is a slip of the keyboard.
    if not 0 < devices <= 1e7:
        raise UserError(
            f"--devices {devices:g}: give the number of devices that the run had, 1 or more"
        )


def requested_column(
    columns: NamedColumns, column_options: Columns, option: str, usual: Sequence[str] = ()
) -> str | None:
    """The column that was asked for, or else the first with a usual name, as the sheet spells it.

    Raises UserError: the sheet lacks the column that was asked for.
    """
    named_column = getattr(column_options, option)
    column = find_column(columns, usual if named_column is None else (named_column,))
    if column is None and named_column is not None:
        choice = column_options.option(option)
        raise UserError(
            f"no column {named_column!r}; name one of {some(list(columns))} with {choice}"
        )
    return column


def only_column(
    candidates: Sequence[str], columns: NamedColumns, column_options: Columns, option: str
) -> str:
    """The only one found. Raises UserError: there are several, or none."""
    quantity = option.replace("_", " ")
    choice = column_options.option(option)
    is_rate = option == "pass_rate"
    usual = PASS_RATE_NAMES if is_rate else COMPUTE_NAMES
    if len(candidates) > 1:
        raise UserError(
            f"{some(candidates)} could each be the {quantity}; choose one with {choice}"
        )
    # If a column has a usual name but holds no number, a later sentence says so.
    name = candidates[0] if candidates else requested_column(columns, column_options, option, usual)
    if name is None:
        likely = [name for name in columns if is_rate and columns[name].may_be_pass_rate]
        none = f"none of the columns {', '.join(usual)}"
        raise UserError(f"{none}; name one of {some(likely or list(columns))} with {choice}")
    return name


def curve_columns(
    choice: ComputeChoice, pass_rate: str, column_options: Columns, tell: Tell
) -> CurveColumns:
    """The columns that hold the curve: requested ones, else the chosen or the usual ones.

    Raises UserError: one is missing, or several could be the compute.
    """

    def find(option: str, usual: tuple[str, ...] = ()) -> str | None:
        return requested_column(choice.columns, column_options, option, usual)

    compute = find("compute" if column_options.seconds is None else "seconds")
    if compute is None:
        compute = only_column(choice.candidates, choice.columns, column_options, "compute")
        if compute.casefold() == CALL_COUNTER:
            option = column_options.option("compute")
            tell(
                f"{compute} counts calls of wandb.log; {option} chooses a column of optimizer steps"
            )
    unit = column_options.unit
    if unit is None:
        unit = choice.columns[compute].unit
    step = find("step", STEP_NAMES)
    if column_options.step is None and step in choice.restarted:
        tell(f"{step} begins again in every epoch, so evaluations are counted by their rows")
        step = None
    return CurveColumns(
        compute=compute,
        pass_rate=pass_rate,
        standard_error=find(
            "standard_error", (f"{ERROR_PREFIX}{pass_rate}", *STANDARD_ERROR_NAMES)
        ),
        truncation_ratio=find("truncation_ratio", TRUNCATION_NAMES),
        step=compute if unit == STEPS and column_options.step is None else step,
        time=find("time"),
        unit=unit,
    )


def per_cent_by_name(pass_rate: NamedColumn, column_options: Columns) -> str:
    """A sentence on a column that is called per cent but holds parts of 1; empty for another one.

    So small a percentage all run long is less likely.
    """
    finite_values = pass_rate.finite_values
    is_as_written = column_options.scale == 1 and column_options.offset == 0
    if not (
        is_as_written and pass_rate.is_per_cent and finite_values.size and finite_values.max() <= 1
    ):
        return ""
    return (
        f"{shorten_name(pass_rate.name)} is per cent by its name but holds at most "
        f"{finite_values.max():g}, read as parts of 1; if it is per cent, add "
        f"{column_options.option('scale')} 0.01"
    )


def some(names: Sequence[str]) -> str:
    """The first ten names, for a sentence."""
    more = ", ..." if len(names) > MAX_NAMES_IN_A_SENTENCE else ""
    return ", ".join(map(shorten_name, names[:MAX_NAMES_IN_A_SENTENCE])) + more
