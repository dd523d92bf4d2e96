"""The leave-one-out table of `compare --baseline` and `ablate`, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rollcast.cli import report
from rollcast.cli.output import say
from rollcast.cli.run_report import cautions, middle_law, not_described, number, run_report
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.decisions.leave_one_out import LeaveOneOut, Row

NOT_COMPARED = "not compared: no law describes it, or the whole recipe"
"""Shown in the column for the kind of part."""


def table_answer(table: LeaveOneOut, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The runs and the table as JSON. `forecasts`: of the rows."""
    return {
        "runs": [
            run_report(forecast, middle_law(common_forecast))
            for forecast, common_forecast in zip(forecasts, table.at_common, strict=True)
        ],
        "leave_one_out": table_report(table, forecasts),
    }


def table_report(table: LeaveOneOut, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The leave-one-out table as JSON; the whole recipe is the first row and has no losses.

    `forecasts`: of the rows. A row that no law describes has no numbers. If that row is the whole
    recipe, there is nothing to compare the others with, and they have no losses.
    """
    from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN

    described = [forecast.verdict.is_described for forecast in forecasts]
    rows = [
        _row_report(row, is_described=has_law, is_compared=has_law and described[0])
        for row, has_law in zip(table.rows, described, strict=True)
    ]
    far_names = [
        row.name
        for row in table.rows
        if abs(row.asymptote[1] - table.common_asymptote) > ASYMPTOTE_MARGIN
    ]
    broken = not_described(forecasts)
    return {
        "baseline": table.rows[0].name,
        "common_asymptote": table.common_asymptote if described[0] else None,
        "half_way": table.half_way if described[0] else None,
        "far_from_common": [name for name in far_names if name not in broken]
        if described[0]
        else [],
        "not_described": broken,
        "margin": ASYMPTOTE_MARGIN,
        "rows": rows,
    }


def _row_report(row: Row, *, is_described: bool, is_compared: bool) -> dict[str, Any]:
    law = {"asymptote": row.asymptote, "exponent": row.exponent, "midpoint": row.midpoint}
    comparison = {
        "exponent_at_common": row.exponent_at_common,
        "asymptote_loss": row.asymptote_loss,
        "exponent_loss": row.exponent_loss,
        "compute_ratio": row.compute_ratio,
    }
    kind = None if row.kind is None else str(row.kind)
    return {
        "curve": row.name,
        "num_runs": row.num_runs,
        **{
            name: amounts.interval(values) if is_described else None for name, values in law.items()
        },
        **{
            name: amounts.interval(values) if is_compared and values is not None else None
            for name, values in comparison.items()
        },
        "kind": kind if is_compared or kind is None else NOT_COMPARED,
    }


def show_leave_one_out(answer: dict[str, Any]) -> None:
    """The table, the losses in words, and which rows not to decide on."""
    table = answer["leave_one_out"]
    is_compared = table["common_asymptote"] is not None
    common = f"B at A = {table['common_asymptote']:.3f}" if is_compared else "B at a common A"
    compute = f"compute to {table['half_way']:.3f}" if is_compared else "compute"
    report.show_columns(
        table["rows"],
        {
            "run": lambda row: row["curve"],
            "A (90 %)": lambda row: number(row["asymptote"], ".3f"),
            "B (90 %)": lambda row: number(row["exponent"], ".2f"),
            common: lambda row: number(row["exponent_at_common"], ".2f"),
            compute: _compute,
            "part left out": lambda row: row["kind"] or "(the whole recipe)",
        },
        text_columns=("part left out",),
    )
    if table["not_described"]:
        say(
            f"No law describes {' and '.join(table['not_described'])}: no A, no B and no "
            "comparison is given."
        )
    for row in table["rows"][1:]:
        if row["asymptote_loss"] is None:
            continue
        say(
            f"{row['curve']} against {table['baseline']}: A {_loss(row['asymptote_loss'], '.3f')}, "
            f"B at the common A {_loss(row['exponent_loss'], '.2f')}."
        )
    report.say_cautions(cautions(answer["runs"], "its row"))
    if far_names := table["far_from_common"]:
        say(
            f"caution: the common A of {table['common_asymptote']:.3f} is more than "
            f"{table['margin']:g} off that of {', '.join(far_names)}; B there is bent by it."
        )


def _compute(row: dict[str, Any]) -> str:
    """Times that of the whole recipe; empty if the two recipes have different ceilings or are not
    compared.
    """
    if row["compute_ratio"] is None:
        return "1" if row["kind"] is None else ""
    return amounts.with_span(row["compute_ratio"], ".2f")


def _loss(loss: amounts.Interval, form: str) -> str:
    """The loss as a change: a loss lowers the value."""
    low, middle, high = (-float(loss[name] or 0.0) for name in ("q95", "q50", "q05"))
    return f"{middle:+{form}} ({low:+{form}} to {high:+{form}})"
