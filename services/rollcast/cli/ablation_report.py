"""Report on a set of runs: the paper's leave-one-out table, and the advice that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError
from rollcast.curves.amounts import incomplete_points, left_out
from rollcast.curves.axis import make_curve, without_start_up
from rollcast.curves.curve_source import tell
from rollcast.local.ablation import WHOLE
from rollcast.runfolder.outcomes import RunRecord, State

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.decisions.leave_one_out import LeaveOneOut, Row
    from rollcast.scaling.decisions.repeats import Repeats
    from rollcast.scaling.law.curve import Curve


def curve_of_run(folder: Path, name: str) -> Curve:
    """The curve of a run's folder over device-hours without its start-ups, whatever its fleet did:
    rows share an axis.

    Downstream sets and parts of a mixture are left aside. Malformed lines are counted on standard
    error.

    Raises UserError: there is no curve.
    """
    from rollcast.curves.sources.run_folder import history_of_folder

    history, malformed, _ = history_of_folder(folder, None)
    if malformed:
        tell(left_out(folder, malformed, "line", "of evaluations.jsonl, malformed"))
    if history.num_incomplete:
        tell(f"{folder}: {incomplete_points(history.num_incomplete)} left out")
    return replace(make_curve(history, without_start_up)[1], name=name)


def fit_recipes(records: Sequence[RunRecord]) -> list[Repeats]:
    """The fits of every recipe that has a finished run, the whole one first.

    Raises UserError: the whole recipe has no finished run, or no other recipe has one.
    """
    from rollcast.scaling.decisions.repeats import Repeats

    curves: dict[str, list[Curve]] = defaultdict(list)
    for record in records:
        if record.state is State.FINISHED:
            curves[record.variant].append(curve_of_run(Path(record.folder), record.run))
    if WHOLE not in curves or len(curves) == 1:
        lacking = "the whole recipe" if WHOLE not in curves else "any recipe without a part"
        raise UserError(
            f"no table: no run of {lacking} is finished; see the errors above and go on with "
            "--continue"
        )
    names = [WHOLE, *(name for name in curves if name != WHOLE)]
    return [Repeats.from_curves(name, curves[name]) for name in names]


def make_ablation_answer(records: Sequence[RunRecord]) -> tuple[list[Forecast], dict[str, Any]]:
    """The fits in the order of the rows, and all that is said of them: `runs`, `leave_one_out`,
    `advice` and `notes`.

    Raises UserError: no table can be made.
    """
    from rollcast.cli.leave_one_out_report import table_answer
    from rollcast.scaling.decisions.leave_one_out import leave_one_out

    recipes = fit_recipes(records)
    table = leave_one_out(
        recipes[0],
        recipes[1:],
        null_controls={record.variant for record in records if record.null_control},
    )
    forecasts = [recipe.joint for recipe in recipes]
    return forecasts, {
        **table_answer(table, forecasts),
        "advice": advice(table, forecasts, {record.variant: record.what for record in records}),
        "notes": interruption_notes(records),
    }


def advice(
    table: LeaveOneOut, forecasts: Sequence[Forecast], descriptions: dict[str, str]
) -> list[str]:
    """Advice in the paper's order: raise the ceiling first, then the speed.

    `forecasts`: of the rows; a row that no law describes gives no advice. `what`: each row in
    words.
    """
    from rollcast.scaling.decisions.leave_one_out import PartKind

    if not forecasts[0].verdict.is_described:
        return [
            f"No law describes {table.rows[0].name}, the whole recipe: nothing can be compared "
            "with it."
        ]
    described = {forecast.curve.name for forecast in forecasts if forecast.verdict.is_described}
    rows = [row for row in table.rows[1:] if row.name in described]
    lines = []
    movers = sorted(
        (row for row in rows if row.kind is PartKind.CEILING_MOVER),
        key=_asymptote_loss,
        reverse=True,
    )
    shapers = sorted(
        (row for row in rows if row.kind is PartKind.EFFICIENCY_SHAPER), key=_ratio, reverse=True
    )
    if movers:
        lines.append("Raise the ceiling first: no compute makes up for a lower one.")
        for row in movers:
            loss = _asymptote_loss(row)
            act = f"A falls by {loss:.3f}; do not" if loss > 0 else f"A rises by {-loss:.3f}; do"
            lines.append(f"  {_describe_row(row, descriptions)}: {act}.")
    if shapers:
        lines.append("Then the speed:" if movers else "The ceiling is not moved; the speed is:")
        lines.extend(f"  {_describe_row(row, descriptions)}: {_speed(row)}." for row in shapers)
    if unknown := [row.name for row in rows if row.kind is PartKind.CANNOT_TELL]:
        lines.append(
            f"Undecided: {', '.join(unknown)}. Keep the simpler or steadier variant, or train for "
            "longer and with more seeds: an interval that contains 0 does not prove that there is "
            "no difference."
        )
    if null := [row for row in rows if row.kind is PartKind.NULL_CONTROL]:
        ratios = ", ".join(f"{row.name} {_ratio(row):.2f} times" for row in null)
        lines.append(
            f"Null controls train as the whole recipe does, and show the noise: {ratios} its "
            "compute half-way up. A difference of that size means nothing."
        )
    return lines


def interruption_notes(records: Sequence[RunRecord]) -> list[str]:
    """How often thinking was cut short; if it hardly was, the switch did nothing."""
    interrupted_ratios = [
        record.interrupted_ratio for record in records if record.interrupted_ratio is not None
    ]
    if not interrupted_ratios:
        return []
    max_ratio = max(interrupted_ratios)
    lines = [
        f"Thinking was cut short in {min(interrupted_ratios):.4f} to {max_ratio:.4f} of the "
        "rollouts of a run."
    ]
    # Share of interrupted rollouts below which leaving the interruption out changes nothing
    if max_ratio < 0.005:
        lines.append(
            "Hardly any reached a position of interruption: leaving that part out took next to "
            "nothing away."
        )
    return lines


def _describe_row(row: Row, descriptions: dict[str, str]) -> str:
    return f"{row.name} ({descriptions[row.name]})" if row.name in descriptions else row.name


def _asymptote_loss(row: Row) -> float:
    return row.asymptote_loss[1] if row.asymptote_loss else 0.0


def _ratio(row: Row) -> float:
    return row.compute_ratio[1] if row.compute_ratio else 1.0


def _speed(row: Row) -> str:
    """By compute if the compute differs clearly, otherwise by B."""
    from rollcast.scaling.decisions.compare import is_off_zero, logarithms
    from rollcast.scaling.decisions.settings import LOG_COMPUTE_RATIO_MARGIN

    if row.compute_ratio and is_off_zero(logarithms(row.compute_ratio), LOG_COMPUTE_RATIO_MARGIN):
        low, ratio, high = row.compute_ratio
        act = "do not" if ratio > 1 else "do"
        return (
            f"half-way up it has taken {ratio:.2f} times the compute ({low:.2f} to {high:.2f}); "
            f"{act}"
        )
    loss = row.exponent_loss[1] if row.exponent_loss else 0.0
    return f"B falls by {loss:.2f}; do not" if loss > 0 else f"B rises by {-loss:.2f}; do"
