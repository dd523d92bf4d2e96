"""The surviving evaluations of one run, read once and whole, and the curve through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rollcast.curves.axis import ComputeAxis, choose_axis, without_start_up
from rollcast.curves.evaluation_columns import column, curve_of
from rollcast.curves.evaluations import CurvePoint
from rollcast.curves.origin import OWN, Origin
from rollcast.scaling.law.curve import Curve


@dataclass(frozen=True)
class RunHistory:
    """Attributes:
    name: the run.
    evaluations: of the surviving history, in order of compute.
    num_dropped: readings without a finite pass rate and compute.
    origin: as what the source was read, and in which unit.
    num_incomplete: evaluations left out because too few of their prompts were graded.
    """

    name: str
    evaluations: Sequence[CurvePoint]
    num_dropped: int = 0
    origin: Origin = OWN
    num_incomplete: int = 0

    def fitted(self) -> tuple[ComputeAxis, Curve]:
        """The curve that the law is fitted to, and the axis that leads back from it to device-hours.

        Raises ValueError: no evaluation after the first step, or one that cannot be.
        """
        return self._on(choose_axis)

    def in_device_hours(self) -> tuple[ComputeAxis, Curve]:
        """The curve over device-hours without start-ups, whatever the fleet did: runs that are held against each other
        share an axis. Raises ValueError as `fitted`."""
        return self._on(without_start_up)

    def _on(self, choose: Callable[[Sequence[CurvePoint]], ComputeAxis]) -> tuple[ComputeAxis, Curve]:
        if not self.evaluations:
            raise ValueError(f"curve {self.name!r}: no finite point at compute > 0; give at least one evaluation.")
        axis = choose(self.evaluations)
        curve = curve_on(axis, self.evaluations, self.name)
        return axis, replace(curve, dropped=curve.dropped + self.num_dropped, unit=self.origin.unit)


def curve_on(axis: ComputeAxis, evaluations: Sequence[CurvePoint], name: str) -> Curve:
    """The evaluations on an axis of theirs. Raises ValueError: none after the first step, or one that cannot be."""
    return curve_of(evaluations, axis.to_fitted(column(evaluations, "compute")), name)
