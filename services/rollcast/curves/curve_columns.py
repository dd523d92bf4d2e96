"""Which columns of a sheet hold its curve: those that the user names, else those that names and values suggest."""

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
    some,
    unit_of,
)
from rollcast.curves.compute_column import compute_columns, step_columns
from rollcast.curves.epoch_steps import begins_again, counted_on
from rollcast.curves.pass_rate_column import choose_pass_rate, plausible_columns
from rollcast.curves.ratios import ERROR_PREFIX
from rollcast.curves.sheet import Sheet


def curve_columns(sheet: Sheet, asked: Columns, tell: Tell) -> tuple[Sheet, CurveColumns]:
    """The columns that hold the curve, and the sheet with counters that continue through the epochs.

    The callback receives sentences on a choice that is not obvious.

    Raises UserError: a column is missing, or several could be meant, and what helps.
    """
    if asked.seconds is not None or asked.devices is not None:
        _check_seconds(asked)
    pass_rate = _named(sheet, asked, "pass_rate")
    if pass_rate is None:
        choice = choose_pass_rate(sheet)
        pass_rate = _one_of(choice.columns, sheet, asked, "pass_rate")
        if choice.sentence:
            tell(f"{choice.sentence}; {asked.option('pass_rate')} chooses another column")
    sheet = _counted_through_epochs(sheet, pass_rate, tell)
    compute = _named(sheet, asked, "compute" if asked.seconds is None else "seconds")
    if compute is None:
        compute = _one_of(compute_columns(sheet, pass_rate), sheet, asked, "compute")
        if compute.casefold() == CALL_COUNTER:
            tell(f"{compute} counts calls of wandb.log; {asked.option('compute')} chooses a column of optimizer steps")
    unit = unit_of(compute) if asked.unit is None else asked.unit
    step = _named(sheet, asked, "step", STEP_NAMES)
    if step is not None and asked.step is None and begins_again(sheet, step):
        tell(f"{step} begins again in every epoch, so evaluations are counted by their rows")
        step = None
    columns = CurveColumns(
        compute=compute,
        pass_rate=pass_rate,
        standard_error=_named(sheet, asked, "standard_error", (f"{ERROR_PREFIX}{pass_rate}", *STANDARD_ERROR_NAMES)),
        truncation_ratio=_named(sheet, asked, "truncation_ratio", TRUNCATION_NAMES),
        step=compute if unit == STEPS and asked.step is None else step,
        time=_named(sheet, asked, "time"),
        unit=unit,
    )
    return sheet, columns


def _counted_through_epochs(sheet: Sheet, pass_rate: str, tell: Tell) -> Sheet:
    for name in step_columns(list(sheet.columns)):
        if name != pass_rate and begins_again(sheet, name) and (continued := counted_on(sheet, name, pass_rate)):
            tell(f"{name} begins again in every epoch, so it is counted on from the end of each")
            sheet = continued
    return sheet


def _named(sheet: Sheet, asked: Columns, option: str, usual: Sequence[str] = ()) -> str | None:
    """The column that was asked for, or else the first with a usual name, as the sheet spells it."""
    names = list(sheet.columns)
    asked_name = getattr(asked, option)
    column = find_column(names, usual if asked_name is None else (asked_name,))
    if column is None and asked_name is not None:
        raise UserError(f"no column {asked_name!r}; name one of {some(names)} with {asked.option(option)}")
    return column


def _one_of(found: list[str], sheet: Sheet, asked: Columns, option: str) -> str:
    """The only one found. Raises UserError: there are several, or none."""
    quantity = option.replace("_", " ")
    usual = PASS_RATE_NAMES if option == "pass_rate" else COMPUTE_NAMES
    if len(found) > 1:
        raise UserError(f"{some(found)} could each be the {quantity}; choose one with {asked.option(option)}")
    # If a column has a usual name but holds no number, a later sentence says so.
    name = found[0] if found else _named(sheet, asked, option, usual)
    if name is None:
        names = plausible_columns(sheet) if option == "pass_rate" else list(sheet.columns)
        none = f"none of the columns {', '.join(usual)}"
        raise UserError(f"{none}; name one of {some(names)} with {asked.option(option)}")
    return name


def _check_seconds(asked: Columns) -> None:
    """Raises UserError unless seconds and devices are given together, and instead of compute."""
    if asked.seconds is None:
        raise UserError(f"--devices {asked.devices:g}: needs --seconds, the column of the time that passed")
    if asked.compute is not None:
        raise UserError(f"--seconds {asked.seconds}: --compute is given too; leave one of them out")
    if asked.devices is None:
        raise UserError(f"--seconds {asked.seconds}: needs --devices, to count device-hours")
    # 1e7: more than any run has had; a larger number is a slip of the keyboard.
    if not 0 < asked.devices <= 1e7:
        raise UserError(f"--devices {asked.devices:g}: give the number of devices that the run had, 1 or more")
