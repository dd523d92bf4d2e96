"""The surviving evaluations of one run, read once and whole, and the curve through them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rollcast.curves.axis import ComputeAxis, choose_axis
from rollcast.curves.evaluations import CurvePoint, curve_of
from rollcast.scaling.curve import Curve


@dataclass(frozen=True)
class RunHistory:
    """Attributes:
    name: the run.
    evaluations: of the surviving history, in order of compute.
    num_dropped: readings without a finite pass rate and compute.
    """

    name: str
    evaluations: tuple[CurvePoint, ...]
    num_dropped: int = 0

    def fitted(self) -> tuple[ComputeAxis, Curve]:
        """The curve, and the axis that leads back from it to device-hours.

        Raises ValueError: no evaluation after the first step, or one that cannot be.
        """
        if not self.evaluations:
            raise ValueError(f"curve {self.name!r}: no finite point at compute > 0; give at least one evaluation.")
        axis, curve = fitted_curve(self.evaluations, self.name)
        return axis, replace(curve, dropped=curve.dropped + self.num_dropped)


def fitted_curve(evaluations: tuple[CurvePoint, ...], name: str) -> tuple[ComputeAxis, Curve]:
    """The same for every source: against what the law is fitted, and the curve on that axis. Raises ValueError."""
    axis = choose_axis(evaluations)
    return axis, curve_of(evaluations, axis.to_fitted(np.array([item.compute for item in evaluations])), name)
