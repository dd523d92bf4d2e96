"""Which columns of a sheet hold its curve: those that the user names, else those that names and
values suggest.
"""

from collections.abc import Sequence

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.columns import (
    CALL_COUNTER,
    COMPUTE_NAMES,
    PASS_RATE_NAMES,
    STANDARD_ERROR_NAMES,
    STEP_NAMES,
    STEPS,
    TRUNCATION_NAMES,
    Columns,
    CurveColumns,
    find_column,
    find_unit,
    some,
)
from rollcast.curves.compute_column import compute_columns, step_columns
from rollcast.curves.epoch_steps import begins_again, counted_on
from rollcast.curves.pass_rate_column import choose_pass_rate, plausible_columns
from rollcast.curves.ratios import ERROR_PREFIX
from rollcast.curves.sheet import Sheet


def curve_columns(sheet: Sheet, column_options: Columns, tell: Tell) -> tuple[Sheet, CurveColumns]:
    """The columns that hold the curve, and the sheet with counters that continue through the
    epochs.

    The callback receives sentences on a choice that is not obvious.

    Raises UserError: a column is missing, or several could be meant, and what helps.
    """
    if column_options.seconds is not None or column_options.devices is not None:
        _check_seconds(column_options)
    pass_rate = _resolve_column(sheet, column_options, "pass_rate")
    if pass_rate is None:
        choice = choose_pass_rate(sheet)
        pass_rate = _require_one_column(choice.columns, sheet, column_options, "pass_rate")
        if choice.sentence:
            tell(f"{choice.sentence}; {column_options.option('pass_rate')} chooses another column")
    sheet = _counted_through_epochs(sheet, pass_rate, tell)
    compute = _resolve_column(
        sheet, column_options, "compute" if column_options.seconds is None else "seconds"
    )
    if compute is None:
        compute = _require_one_column(
            compute_columns(sheet, pass_rate), sheet, column_options, "compute"
        )
        if compute.casefold() == CALL_COUNTER:
            tell(
                f"{compute} counts calls of wandb.log; {column_options.option('compute')} chooses "
                "a column of "
                "optimizer steps"
            )
    unit = find_unit(compute) if column_options.unit is None else column_options.unit
    step = _resolve_column(sheet, column_options, "step", STEP_NAMES)
    if step is not None and column_options.step is None and begins_again(sheet, step):
        tell(f"{step} begins again in every epoch, so evaluations are counted by their rows")
        step = None
    columns = CurveColumns(
        compute=compute,
        pass_rate=pass_rate,
        standard_error=_resolve_column(
            sheet,
            column_options,
            "standard_error",
            (f"{ERROR_PREFIX}{pass_rate}", *STANDARD_ERROR_NAMES),
        ),
        truncation_ratio=_resolve_column(
            sheet, column_options, "truncation_ratio", TRUNCATION_NAMES
        ),
        step=compute if unit == STEPS and column_options.step is None else step,
        time=_resolve_column(sheet, column_options, "time"),
        unit=unit,
    )
    return sheet, columns


def _counted_through_epochs(sheet: Sheet, pass_rate: str, tell: Tell) -> Sheet:
    for name in step_columns(list(sheet.columns)):
        if (
            name != pass_rate
            and begins_again(sheet, name)
            and (continued := counted_on(sheet, name, pass_rate))
        ):
            tell(f"{name} begins again in every epoch, so it is counted on from the end of each")
            sheet = continued
    return sheet


def _resolve_column(
    sheet: Sheet, column_options: Columns, option: str, usual: Sequence[str] = ()
) -> str | None:
    """The column that was asked for, or else the first with a usual name,
    as the sheet spells it.
    """
    names = list(sheet.columns)
    asked_name = getattr(column_options, option)
    column = find_column(names, usual if asked_name is None else (asked_name,))
    if column is None and asked_name is not None:
        raise UserError(
            f"no column {asked_name!r}; name one of {some(names)} with "
            f"{column_options.option(option)}"
        )
    return column


def _require_one_column(
    candidates: list[str], sheet: Sheet, column_options: Columns, option: str
) -> str:
    """The only one found. Raises UserError: there are several, or none."""
    quantity = option.replace("_", " ")
    usual = PASS_RATE_NAMES if option == "pass_rate" else COMPUTE_NAMES
    if len(candidates) > 1:
        raise UserError(
            f"{some(candidates)} could each be the {quantity}; choose one with "
            f"{column_options.option(option)}"
        )
    # If a column has a usual name but holds no number, a later sentence says so.
    name = candidates[0] if candidates else _resolve_column(sheet, column_options, option, usual)
    if name is None:
        names = plausible_columns(sheet) if option == "pass_rate" else list(sheet.columns)
        none = f"none of the columns {', '.join(usual)}"
        raise UserError(f"{none}; name one of {some(names)} with {column_options.option(option)}")
    return name


def _check_seconds(column_options: Columns) -> None:
    """Raises UserError unless seconds and devices are given together, and instead of compute."""
    if column_options.seconds is None:
        raise UserError(
            f"--devices {column_options.devices:g}: needs --seconds, the column of the time that "
            "passed"
        )
    if column_options.compute is not None:
        raise UserError(
            f"--seconds {column_options.seconds}: --compute is given too; leave one of them out"
        )
    if column_options.devices is None:
        raise UserError(
            f"--seconds {column_options.seconds}: needs --devices, to count device-hours"
        )
    # 1e7: more than any run has had; a larger number is a slip of the keyboard.
    if not 0 < column_options.devices <= 1e7:
        raise UserError(
            f"--devices {column_options.devices:g}: give the number of devices that the run had, 1 "
            "or more"
        )
