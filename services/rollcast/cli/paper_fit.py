"""`rollcast fit --paper`: A, B and C_mid as the ScaleRL paper fits them (arXiv 2510.13786, A.5),
for its tables.

A grid over A and C_mid, B by least squares at each node, the smallest sum of squares. R_0 is given,
and early readings are left out by hand. So the procedure has no interval, no verdict and no advice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import typer

from rollcast.cli import report
from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves.amounts import amount, format_count
from rollcast.curves.curve_source import read_curves
from rollcast.scaling.law.baselines import PAPER_ASYMPTOTES, PAPER_MIDPOINTS, paper_grid

if TYPE_CHECKING:
    from rollcast.curves.columns.choices import Columns
    from rollcast.curves.evaluations import Origin
    from rollcast.scaling.law.curve import Curve, SigmoidParameters

PROCEDURE = "arXiv 2510.13786, A.5"


def fit_as_paper(
    source: str,
    columns: Columns,
    run: str | None,
    initial: float | None,
    exclude_before: float | None,
    computes: list[float],
    targets: list[float],
    *,
    as_json: bool,
) -> None:
    """Read, fit and print.

    `computes`: if empty, twice and four times the newest. Raises UserError.
    """
    (origin, curve), *_ = read_curves(source, columns, run)
    last = float(curve.compute[-1])
    if any(not 0 < compute <= MOST_COMPUTE for compute in computes):
        raise UserError(f"--at: {curve.unit} must be in {COMPUTES}")
    try:
        answer = _paper_report(
            origin, curve, initial, exclude_before, computes or [2 * last, 4 * last], targets
        )
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    report.print_answer(answer, _show, as_json=as_json)


def _paper_report(
    origin: Origin,
    curve: Curve,
    initial: float | None,
    exclude_before: float | None,
    computes: list[float],
    targets: list[float],
) -> dict[str, Any]:
    """The fit as JSON. `initial`: R_0; None = the pass rate at compute 0. `exclude_before`: in the
    curve's unit.

    Raises UserError: there is no R_0 below the readings, a target is not a pass rate, or points are
    too few; ValueError: no point is left.
    """
    start = _find_start(curve, initial)
    if wrong := [target for target in targets if not 0 <= target <= 1]:
        raise UserError(f"--target: {wrong[0]:g} is not a pass rate; give one in [0, 1]")
    window = curve.window(exclude_before or 0.0)
    # The procedure fits three parameters: A, B and C_mid.
    least_points = 3
    if len(window) < least_points:
        raise UserError(
            f"--paper: {format_count(len(window), 'evaluation')} are left; its fit needs "
            f"{least_points} or more"
        )
    if (highest := float(window.pass_rate.max())) <= start:
        raise UserError(
            f"--initial: {start:g} is not below the highest reading, {highest:g}, and the law only "
            "rises"
        )
    law = paper_grid(window, start)
    edges = {"A": (law.asymptote, PAPER_ASYMPTOTES), "C_mid": (law.midpoint, PAPER_MIDPOINTS)}
    return {
        "procedure": PROCEDURE,
        "curve": curve.name,
        "num_points": len(curve),
        "excluded": len(curve) - len(window),
        "compute": float(curve.compute[-1]),
        "unit": curve.unit,
        "source": vars(origin),
        "pass_rate": float(curve.pass_rate[-1]),
        **vars(law),
        "residual": float(((window.pass_rate - law.pass_rate(window.compute)) ** 2).mean() ** 0.5),
        "on_edge": {
            name: [float(grid[0]), float(grid[-1])]
            for name, (fitted_value, grid) in edges.items()
            if fitted_value in (grid[0], grid[-1])
        },
        "predictions": [
            {"compute": compute, "pass_rate": float(rate)}
            for compute, rate in zip(computes, law.pass_rate(computes), strict=True)
        ],
        "targets": [
            {"pass_rate": target, "compute": _compute_to(target, law)} for target in targets
        ],
    }


def _find_start(curve: Curve, initial: float | None) -> float:
    """R_0. Raises UserError: it is not known, or no pass rate below 1."""
    start = curve.initial if initial is None else initial
    if start is None:
        raise UserError(
            f"--paper: its fit takes R_0 as given, and {curve.name!r} has no reading at compute 0; "
            "give --initial (0.4 reproduces the fits that the paper prints)"
        )
    if not 0 <= start < 1:
        raise UserError(f"--initial: {start:g} is not a pass rate below 1; give one in [0, 1)")
    return start


def _compute_to(target: float, law: SigmoidParameters) -> float | None:
    """Compute at which the law reaches it; 0 from the start on, None never."""
    if target <= law.initial:
        return 0.0
    if target >= law.asymptote:
        return None
    odds = (target - law.initial) / (law.asymptote - target)
    log_compute = (
        math.log(law.midpoint) + math.log(odds) / law.exponent
    )  # B may be tiny: a power would overflow
    # ln of a compute that is never: exp overflows at 709
    return math.exp(log_compute) if log_compute < 600.0 else None


def _show(answer: dict[str, Any]) -> None:
    unit = answer["unit"]
    typer.echo(
        f"{answer['curve']}: {format_count(answer['num_points'], 'evaluation')}, "
        f"{answer['excluded']} excluded, now "
        f"{answer['pass_rate']:.3f} at {amount(answer['compute'])} {unit}"
    )
    typer.echo(
        f"The paper's own fit ({PROCEDURE}). It has no intervals and no verdict, so decide nothing "
        "on it alone."
    )
    for name, (low, high) in answer["on_edge"].items():
        typer.echo(
            f"{name} is at an edge of the paper's grid, {amount(low)} to {amount(high)}: the best "
            "one is beyond it, and the procedure does not find it."
        )
    rows = [
        ("asymptote A", f"{answer['asymptote']:.3f}"),
        ("exponent B", f"{answer['exponent']:.2f}"),
        (f"midpoint C_mid, {unit}", amount(answer["midpoint"])),
        ("initial R_0, as given", f"{answer['initial']:.3f}"),
        ("root mean square of the residuals", f"{answer['residual']:.4f}"),
    ]
    rows += [
        (f"pass rate at {amount(prediction['compute'])}", f"{prediction['pass_rate']:.3f}")
        for prediction in answer["predictions"]
    ]
    rows += [
        (f"{unit} to {target['pass_rate']:g}", amount(target["compute"]))
        for target in answer["targets"]
    ]
    report.show_table(("", "fit"), rows)
