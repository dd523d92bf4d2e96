"""The answer: what Rollcast states about the forecast of one run, wherever it states it.

The commands, Python, HTTP, the push answer, the page, the metrics and the forecast log take
verdict, flags and law from here. The numbers of the law (A, B, C_mid, R_0, the headroom, the
compute to a pass rate) exist only if the law describes the curve. Otherwise the fields are None:
the numbers would belong to a law that the curve does not follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from rollcast.curves.amounts import Interval, interval, unknown_interval
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.scaling.decisions.forecast import Forecast, Verdict
from rollcast.scaling.law.curve import Array, SigmoidParameters


@dataclass(frozen=True)
class LawAnswer:
    """The constants of the law, each as quantiles by name.

    Attributes:
        headroom: asymptote minus the level now, of a curve without a budget minus the law now.
        ceiling_probability: that gains end within sight; the constants are those of such
            trajectories.
        midpoint: C_mid in the unit of the curve.
        best: the law of maximum posterior, on the axis of the fit.
    """

    asymptote: Interval
    ceiling_probability: float
    headroom: Interval
    exponent: Interval
    midpoint: Interval
    initial: Interval
    best: SigmoidParameters


def law_of_run(run: RunForecast, levels: tuple[float, ...] = QUANTILES) -> LawAnswer | None:
    """The law of a run, or None if no law describes its curve."""
    return _law(run.forecast, run.midpoint(levels), run.headroom(levels), levels)


def law_of_curve(forecast: Forecast, levels: tuple[float, ...] = QUANTILES) -> LawAnswer | None:
    """The law of a curve that was fitted on its own compute, or None if no law describes it."""
    return _law(forecast, forecast.midpoint(levels), forecast.headroom(levels), levels)


def _law(
    forecast: Forecast, midpoint: Array, headroom: Array, levels: tuple[float, ...]
) -> LawAnswer | None:
    if not forecast.verdict.is_described:
        return None
    return LawAnswer(
        asymptote=interval(forecast.asymptote(levels), levels),
        ceiling_probability=forecast.ceiling_probability,
        headroom=interval(headroom, levels),
        exponent=interval(forecast.exponent(levels), levels),
        midpoint=interval(midpoint, levels),
        initial=interval(forecast.initial(levels), levels),
        best=forecast.best,
    )


def law_as_json(law: LawAnswer | None) -> dict[str, Any]:
    """Every field of the law by name, with the value None if no law describes the curve."""
    if law is None:
        return {field.name: None for field in fields(LawAnswer)}
    return {**vars(law), "best": vars(law.best)}


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict with its reason, and what follows from it."""
    return {
        "verdict": str(verdict.kind),
        "has_forecast": verdict.has_forecast,
        "missing": verdict.num_missing,
        "is_described": verdict.is_described,
        "is_decidable": verdict.kind.is_decidable,
        "reason": verdict.reason,
    }


def compute_to_target(run: RunForecast, target: float) -> Interval | None:
    """Compute at which the law reaches `target`; None if no law describes the curve.

    Raises ValueError: the target is not a pass rate.
    """
    reached = run.compute_to_target(target, QUANTILES)
    return interval(reached, QUANTILES) if run.forecast.verdict.is_described else None


def readings_at(
    run: RunForecast, computes: Sequence[float], levels: tuple[float, ...] = QUANTILES
) -> list[Interval]:
    """The reading of an evaluation at each of `computes`; every quantile is None if the evaluations
    are too few.
    """
    if not run.forecast.verdict.has_predictions:
        return [unknown_interval(levels) for _ in computes]
    if not computes:
        return []
    return [interval(reading, levels) for reading in run.reading(computes, levels).T]


def state_as_json(run: RunForecast) -> dict[str, Any]:
    """The curve, its newest evaluation, and the verdict."""
    curve = run.forecast.curve
    return {
        "curve": curve.name,
        "num_points": len(run.evaluations),
        "num_at_start": run.num_at_start,
        "dropped": curve.dropped,
        "incomplete": run.num_incomplete,
        "excluded": run.forecast.excluded,
        **verdict_as_json(run.forecast.verdict),
        "compute": run.newest.compute,
        "unit": run.unit,
        "source": vars(run.origin),
        "fitted_on": run.fitted_on,
        "start_up": run.axis.start_up,
        "pass_rate": float(curve.pass_rate[-1]),
    }


def answer_as_json(
    run: RunForecast, computes: Sequence[float], targets: Sequence[float]
) -> dict[str, Any]:
    """What `rollcast fit --json` prints, without the advice.

    Args:
        computes: computes at which a reading is predicted.
        targets: pass rates to reach.

    Raises ValueError: a target is not a pass rate.
    """
    return {
        **state_as_json(run),
        **law_as_json(law_of_run(run)),
        "predictions": [
            {"compute": compute, **reading}
            for compute, reading in zip(computes, readings_at(run, computes), strict=True)
        ],
        "targets": [
            {"pass_rate": target, "compute": compute_to_target(run, target)} for target in targets
        ],
    }
