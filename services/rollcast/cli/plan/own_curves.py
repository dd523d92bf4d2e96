"""What `plan sizes` and `plan batch` share: the law across runs next to each run's own curve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rollcast.cli.report import NO_NUMBER, Cell
from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves import amounts
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Array


def check_budget(budget: float) -> None:
    """Raises UserError: it is no compute."""
    if not 0 < budget <= MOST_COMPUTE:
        raise UserError(f"--budget {budget:g}: compute must be in {COMPUTES}")


def own_curve(
    name: str, forecast: Forecast, budget: float, standard_error: float | None = None
) -> dict[str, Any]:
    """The reading at the budget by the run's own curve, as JSON."""
    kind = forecast.verdict.kind
    quantiles = forecast.predictive([budget], amounts.MEDIAN_AND_90, standard_error=standard_error)
    return {
        "curve": name,
        "verdict": str(kind),
        "is_described": kind.is_described,
        **amounts.interval(quantiles[:, 0]),
    }


def disagreements(row: dict[str, Any], law_name: str) -> Iterator[str]:
    """The own curves of a row whose interval at the budget does not touch the law's."""
    law = row["pass_rate"]
    for fit in row["own_curves"]:
        if fit["is_described"] and (fit["q95"] < law["q05"] or fit["q05"] > law["q95"]):
            yield (
                f"{fit['curve']} ({row['name']}): its own curve says {amounts.span(fit, '.3f')} at "
                f"the budget, {law_name} {amounts.span(law, '.3f')}; trust its own."
            )


def law_columns(budget: float) -> dict[str, Cell]:
    """Columns of a table: the law at the budget, and the own curves there."""
    return {
        f"law at {amounts.amount(budget)}": lambda row: f"{row['pass_rate']['q50']:.3f}",
        "90 %": lambda row: amounts.span(row["pass_rate"], ".3f"),
        "own curve, 90 %": lambda row: (
            ", ".join(amounts.span(curve, ".3f") for curve in row["own_curves"]) or NO_NUMBER
        ),
    }


def draws_interval(draws: Array) -> amounts.Interval:
    """Median and 90 % interval of a posterior's draws."""
    return amounts.interval(np.quantile(draws, amounts.MEDIAN_AND_90))
