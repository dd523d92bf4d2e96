"""The beginnings of curves, from which their ends are forecast, and the ends that were measured.

A cell is a metric and the share of a curve that is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rollcast.cli.corpus.curves import CorpusCurve
from rollcast.cli.corpus.votes import arithmetic_mean
from rollcast.scaling.law.curve import Curve

SHARES = (0.25, 0.5)
"""Shares of a curve's compute after which its end is forecast."""
NUM_OUTCOME_READINGS = 3
"""Last readings whose mean is the outcome. Their noise averages out, and a run hardly moves within
them."""


@dataclass(frozen=True, eq=False)
class Window:
    """The first `num_seen` readings of a curve."""

    source: CorpusCurve
    share: float
    num_seen: int

    @property
    def cell(self) -> str:
        return f"{self.source.metric} {self.share:g}"

    @property
    def repository(self) -> str:
        return self.source.repository

    @cached_property
    def seen_curve(self) -> Curve:
        """The window as the fit takes it."""
        return Curve.from_points(
            self.source.compute[: self.num_seen],
            self.source.y[: self.num_seen],
            self.source.known_errors(self.num_seen),
            unit="steps",
        )

    @property
    def last(self) -> float:
        """Last pass rate that is seen."""
        return float(self.source.y[self.num_seen - 1])

    @property
    def ahead(self) -> list[float]:
        """Compute of the readings whose mean is the outcome."""
        last: list[float] = self.source.compute[-NUM_OUTCOME_READINGS:].tolist()
        return last

    @property
    def outcome(self) -> float:
        return arithmetic_mean(self.source.y[-NUM_OUTCOME_READINGS:].tolist())


def make_windows(curves: Sequence[CorpusCurve], shares: Sequence[float] = SHARES) -> list[Window]:
    """Every window of every curve that is long enough, in the order of the curves."""
    return [
        Window(curve, share, num_seen)
        for curve in curves
        for share in shares
        if (num_seen := num_readings_seen(curve, share)) is not None
    ]


def num_readings_seen(curve: CorpusCurve, share: float) -> int | None:
    """Readings in the first `share` of the compute; None if too few are there, or after it."""
    # Shorter curves have no first half to forecast from
    if len(curve) < 10:
        return None
    first = float(curve.x[0])
    last = float(curve.x[-1])
    num_seen = int(np.sum(curve.x <= first + share * (last - first)))
    num_after_start = int(np.sum(curve.x[:num_seen] > 0.0))
    # Readings after compute 0 that a window needs: as many as a verdict
    if num_after_start < 5 or len(curve) - num_seen < NUM_OUTCOME_READINGS:
        return None
    return num_seen
