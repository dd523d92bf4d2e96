"""Beginnings of real curves and their later readings, as the stack sees them.

An example is one cut of one curve and one later compute: what each simple method reads there, what
the spread depends on, and the mean of three readings that came. The law is fitted to every cut.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rollcast.cli.corpus.curves import CorpusCurve, read_corpus
from rollcast.cli.corpus.windows import Window, make_windows
from rollcast.config.errors import UserError
from rollcast.scaling.decisions.fit import fit_part
from rollcast.scaling.decisions.no_learning import has_not_moved
from rollcast.scaling.decisions.settings import NOTABLE_GAIN
from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.combined import law_width, scale_terms, side_terms
from rollcast.scaling.outlook.settings import NUM_LEVEL_READINGS
from rollcast.scaling.posterior.options import FitOptions

SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of a curve's compute at which it is cut."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples e of one cut, or of many.

    Attributes:
        repository, metric, share: (e,) where each comes from.
        forecasts: (e, 7) of the simple methods.
        scale_terms: (e, 3) and side_terms: (e, 2), as in `combined.py`.
        outcome: (e,) mean of three readings there.
        ahead: (e,) compute there over compute now, minus 1.
        cut: (e,) number of the cut.
        not_moved: (e,) the level has not moved since the start.
        took_off: (e,) the outcome is a notable gain on the last five, and above every reading so
            far.
    """

    repository: np.ndarray
    metric: np.ndarray
    share: Array
    forecasts: Array
    scale_terms: Array
    side_terms: Array
    outcome: Array
    ahead: Array
    cut: Array
    not_moved: np.ndarray
    took_off: np.ndarray

    def select(self, chosen: np.ndarray) -> Examples:
        """The examples at `chosen`, a mask or places."""
        return Examples(**{name: values[chosen] for name, values in vars(self).items()})


def make_examples(folder: Path) -> Examples:
    """The examples of all curves of a folder, in the order of its index.

    Raises UserError as `read_corpus`.
    """
    curves = read_corpus(folder)
    with ProcessPoolExecutor() as pool:
        parts = [
            cut_examples
            for parts in pool.map(_cut_curve, curves, chunksize=4)
            for cut_examples in parts
        ]
    if not parts:
        raise UserError(
            f"{folder}: no curve is long enough to be cut; ten readings are needed at least"
        )
    joined = {
        name: np.concatenate([getattr(example_set, name) for example_set in parts])
        for name in vars(parts[0])
    }
    joined["cut"] = np.concatenate(
        [np.full(cut_group.cut.size, number) for number, cut_group in enumerate(parts)]
    )
    return Examples(**joined)


def _cut_curve(curve: CorpusCurve) -> list[Examples]:
    return [_make_cut_examples(window) for window in make_windows([curve], SHARES)]


def _make_cut_examples(window: Window) -> Examples:
    curve = window.source
    num_seen = window.num_seen
    beginning = window.seen_curve
    forecast = fit_part(beginning, FitOptions())
    later = len(curve) - num_seen
    # Later computes of one cut, evenly spaced in ln of the number of readings until then, the end
    # among them
    places = (
        np.unique(np.rint(np.geomspace(NUM_LEVEL_READINGS, later, 4)).astype(int)) + num_seen - 1
    )
    compute = curve.compute[places]
    outcome = np.array(
        [curve.y[index - NUM_LEVEL_READINGS + 1 : index + 1].mean() for index in places]
    )
    readings, law_gain = forecast.law_readings(compute)
    summary = forecast.summary
    forecasts = summary.forecasts(compute, law_gain)
    fill_column = partial(np.full, places.size)
    return Examples(
        repository=fill_column(curve.repository),
        metric=fill_column(curve.metric),
        share=fill_column(window.share),
        forecasts=forecasts.T,
        scale_terms=scale_terms(law_width(readings), forecasts).T,
        side_terms=np.tile(side_terms(summary), (places.size, 1)),
        outcome=outcome,
        ahead=compute / curve.compute[num_seen - 1] - 1.0,
        cut=fill_column(0.0),
        not_moved=fill_column(has_not_moved(forecast.curve)),
        took_off=(outcome - summary.last_five >= NOTABLE_GAIN)
        & (outcome > beginning.pass_rate.max()),
    )
