"""Leave-one-out tables (Fig 7 of arXiv 2510.13786): what each part of a recipe is worth.

One run of the whole recipe and one run without each part. The asymptotes are reported as fitted; the efficiencies are
compared with A held, for every run, at the mean of the fitted asymptotes.

    ceiling mover       leaving the part out moves A by more than the paper's margin of 0.02, the 90 % interval off 0
    efficiency shaper   it does not, but moves B at the common A, the 90 % interval off 0
    cannot tell         neither
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rollcast.scaling.compare import MARGIN, difference_of_draws, with_asymptote
from rollcast.scaling.curve import Array
from rollcast.scaling.forecast import Forecast

Triple = tuple[float, float, float]


class PartKind(StrEnum):
    """What a part of the recipe does."""

    CEILING_MOVER = "ceiling mover"
    EFFICIENCY_SHAPER = "efficiency shaper"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Row:
    """One run without a part, or the whole recipe; triples are (5 %, median, 95 %).

    Attributes:
        asymptote, exponent, midpoint: of the free fit.
        exponent_at_common: B with A held at the common asymptote.
        asymptote_loss: A of the whole recipe minus this run's A; what leaving the part out costs. None for the whole.
        exponent_loss: the same of B at the common asymptote.
        kind: of the part that is left out; None for the whole.
    """

    name: str
    asymptote: Triple
    exponent: Triple
    midpoint: Triple
    exponent_at_common: Triple
    asymptote_loss: Triple | None
    exponent_loss: Triple | None
    kind: PartKind | None


@dataclass(frozen=True)
class LeaveOneOut:
    """The table; the whole recipe is the first row.

    Attributes:
        at_common: the fits with A held at `common_asymptote`, in the order of the rows.
    """

    common_asymptote: float
    rows: list[Row]
    at_common: list[Forecast]


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
    rows = [_row(whole, at_common[0], None)]
    for run, held in zip(without, at_common[1:], strict=True):
        losses = (
            difference_of_draws(whole.draws.asymptote, run.draws.asymptote),
            difference_of_draws(at_common[0].draws.exponent, held.draws.exponent),
        )
        rows.append(_row(run, held, losses))
    return LeaveOneOut(common, rows, at_common)


def _row(run: Forecast, held: Forecast, losses: tuple[Array, Array] | None) -> Row:
    asymptote_loss = None if losses is None else _quantiles(losses[0])
    exponent_loss = None if losses is None else _quantiles(losses[1])
    return Row(
        name=run.curve.name,
        asymptote=_triple(run.asymptote()),
        exponent=_triple(run.exponent()),
        midpoint=_triple(run.midpoint()),
        exponent_at_common=_triple(held.exponent()),
        asymptote_loss=asymptote_loss,
        exponent_loss=exponent_loss,
        kind=None if asymptote_loss is None or exponent_loss is None else _kind(asymptote_loss, exponent_loss),
    )


def _kind(asymptote_loss: Triple, exponent_loss: Triple) -> PartKind:
    if _is_off_zero(asymptote_loss) and abs(asymptote_loss[1]) > MARGIN:
        return PartKind.CEILING_MOVER
    return PartKind.EFFICIENCY_SHAPER if _is_off_zero(exponent_loss) else PartKind.CANNOT_TELL


def _is_off_zero(interval: Triple) -> bool:
    return interval[0] > 0 or interval[2] < 0


def _quantiles(draws: Array) -> Triple:
    low, median, high = np.quantile(draws, (0.05, 0.5, 0.95))
    return float(low), float(median), float(high)


def _triple(values: Array) -> Triple:
    return float(values[0]), float(values[1]), float(values[2])
