"""Leave-one-out tables (Fig 7 of arXiv 2510.13786): what each part of a recipe is worth.

One run of the whole recipe and one run without each part. The asymptotes are reported as fitted; the efficiencies are
compared with A held, for every run, at the mean of the fitted asymptotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.compare import MARGIN, with_asymptote
from rollcast.scaling.forecast import Forecast


@dataclass(frozen=True)
class Row:
    """One run; triples are (5 %, median, 95 %).

    Attributes:
        asymptote, exponent, midpoint: of the free fit.
        exponent_at_common: B with A held at the common asymptote.
        asymptote_loss: A of the whole recipe minus this run's A, median; what leaving the part out costs.
        exponent_loss: the same of B at the common asymptote.
        matters: whether either loss is beyond doubt: A by more than the margin, or B with its 90 % interval.
    """

    name: str
    asymptote: tuple[float, float, float]
    exponent: tuple[float, float, float]
    midpoint: tuple[float, float, float]
    exponent_at_common: tuple[float, float, float]
    asymptote_loss: float
    exponent_loss: float
    matters: bool


@dataclass(frozen=True)
class LeaveOneOut:
    """The table; the whole recipe is the first row."""

    common_asymptote: float
    rows: list[Row]


def leave_one_out(whole: Forecast, without: Sequence[Forecast], common_asymptote: float | None = None) -> LeaveOneOut:
    """The table of `whole` and of each run of `without`; their curves' names are the rows' names.

    `common_asymptote`: held instead of the mean of the medians.

    Raises:
        ValueError: no run without a part.
    """
    if not without:
        raise ValueError(
            "without: no run given; leave-one-out needs the whole recipe and at least one run without a part."
        )
    runs = [whole, *without]
    common = common_asymptote or float(np.mean([np.median(run.draws.asymptote) for run in runs]))
    at_common = [with_asymptote(run.curve, common, run.options) for run in runs]
    shuffled = np.random.default_rng(0)
    rows = []
    for run, held in zip(runs, at_common, strict=True):
        asymptote_loss = whole.draws.asymptote - shuffled.permutation(run.draws.asymptote)
        exponent_loss = at_common[0].draws.exponent - shuffled.permutation(held.draws.exponent)
        low, median, high = np.quantile(asymptote_loss, (0.05, 0.5, 0.95))
        slope_low, slope, slope_high = np.quantile(exponent_loss, (0.05, 0.5, 0.95))
        differs = bool((low > 0 or high < 0) and abs(median) > MARGIN) or bool(slope_low > 0 or slope_high < 0)
        rows.append(
            Row(
                name=run.curve.name,
                asymptote=_triple(run.asymptote()),
                exponent=_triple(run.exponent()),
                midpoint=_triple(run.midpoint()),
                exponent_at_common=_triple(held.exponent()),
                asymptote_loss=0.0 if run is whole else float(median),
                exponent_loss=0.0 if run is whole else float(slope),
                matters=run is not whole and differs,
            )
        )
    return LeaveOneOut(common, rows)


def _triple(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])
