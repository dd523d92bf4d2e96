"""The report of `compare` and `ablate` on each of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rollcast.cli import report
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.curve import SigmoidParameters


def run_report(forecast: Forecast, replot_law: SigmoidParameters) -> dict[str, Any]:
    """Everything that is stated about one run, as JSON; `replot_law`: the law
    of its log re-plot.
    """
    from rollcast.curves.answer import law_as_json, law_of_curve, verdict_as_json

    curve = forecast.curve
    law = law_as_json(law_of_curve(forecast, amounts.MEDIAN_AND_90))
    return {
        "curve": curve.name,
        "num_points": len(curve) + curve.num_at_start,
        "num_at_start": curve.num_at_start,
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        **verdict_as_json(forecast.verdict),
        "for_decisions": forecast.verdict.kind.is_decidable,
        "compute": float(curve.compute[-1]),
        "unit": curve.unit,
        "pass_rate": float(curve.pass_rate[-1]),
        **{name: law[name] for name in ("asymptote", "exponent", "midpoint", "initial")},
        "log_replot": replot_report(forecast, replot_law)
        if forecast.verdict.is_described
        else None,
    }


def replot_report(forecast: Forecast, law: SigmoidParameters) -> dict[str, Any]:
    """The law's constants and ln F over ln C of the fitted points; those outside (R_0, A) have no F
    and are counted.
    """
    from rollcast.scaling.decisions.compare import log_replot

    curve = forecast.curve
    fitted = curve.window(float(curve.compute[min(forecast.excluded, len(curve) - 1)]))
    log_compute, log_factor = log_replot(fitted, law)
    return {
        **asdict(law),
        "log_compute": log_compute.tolist(),
        "log_factor": log_factor.tolist(),
        "left_out": len(fitted) - log_compute.size,
    }


def middle_law(forecast: Forecast) -> SigmoidParameters:
    """The medians that the table shows, as one law: the picture draws the printed values."""
    from rollcast.scaling.law.curve import SigmoidParameters

    middle = (0.5,)
    return SigmoidParameters(
        initial=float(forecast.initial(middle)[0]),
        asymptote=float(forecast.asymptote(middle)[0]),
        exponent=float(forecast.exponent(middle)[0]),
        midpoint=float(forecast.midpoint(middle)[0]),
    )


def not_described(forecasts: Sequence[Forecast]) -> list[str]:
    """Names of the curves that no law describes."""
    return [forecast.curve.name for forecast in forecasts if not forecast.verdict.is_described]


def cautions(runs: Sequence[dict[str, Any]], subject: str) -> list[str]:
    """On each run whose own verdict is not for decisions: not to decide on `subject`."""
    return [
        f"{run['curve']}: verdict {run['verdict'].replace('_', ' ')}; do not decide on {subject}."
        for run in runs
        if not run["is_decidable"]
    ]


def number(interval: amounts.Interval | None, form: str) -> str:
    return report.NO_NUMBER if interval is None else amounts.with_span(interval, form)
