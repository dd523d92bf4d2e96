"""The surviving evaluations of one run, read once and whole, and the curve through them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rollcast.curves.axis import ComputeAxis, choose_axis, without_start_up
from rollcast.curves.evaluations import CurvePoint, EvaluationLog, RunEvaluations, column, known_truncation
from rollcast.curves.left_out import Tell, counted
from rollcast.curves.origin import OWN, Origin
from rollcast.scaling.law.curve import Array, Curve


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
        """The curve over device-hours without start-ups, even if the fleet changed: runs that are compared share
        an axis. Raises ValueError as `fitted`."""
        return self._on(without_start_up)

    def _on(self, choose: Callable[[Sequence[CurvePoint]], ComputeAxis]) -> tuple[ComputeAxis, Curve]:
        if not self.evaluations:
            raise ValueError(f"curve {self.name!r}: no finite point at compute > 0; give at least one evaluation.")
        axis = choose(self.evaluations)
        curve = curve_on(axis, self.evaluations, self.name)
        return axis, replace(curve, dropped=curve.dropped + self.num_dropped, unit=self.origin.unit)


def history_of(found: RunEvaluations, name: str, origin: Origin, tell: Tell) -> RunHistory:
    """The surviving evaluations of a log. `tell` receives what was left out. Raises ValueError: one is malformed."""
    if found.complaint:
        raise ValueError(found.complaint)
    log = EvaluationLog(starts=found.starts, limit=len(found.points))
    num_repeated = sum(not log.add(point) for point in found.points)
    if num_repeated:
        tell(f"{counted(num_repeated, 'evaluation')} left out, second readings of a step")
    sorted_out = log.sorted_out()
    if sorted_out.num_lost:
        tell(f"{counted(sorted_out.num_lost, 'evaluation')} left out, of steps that were made again after a restart")
    return RunHistory(name, sorted_out.kept, found.num_unknown, origin, sorted_out.num_incomplete)


def curve_on(axis: ComputeAxis, evaluations: Sequence[CurvePoint], name: str) -> Curve:
    """The evaluations on an axis of theirs. Raises ValueError: none after the first step, or one that cannot be."""
    return curve_of(evaluations, axis.to_fitted(column(evaluations, "compute")), name)


def curve_of(evaluations: Sequence[CurvePoint], x: Array, name: str) -> Curve:
    """The curve of pass rate against `x` (n,), one value for each evaluation; step 0 is compute 0.

    The trainer's standard errors are those of the sampling with the prompts held fixed, so the number of prompts is not
    given to the curve: it would take the choice of prompts out a second time.

    Raises:
        ValueError: no evaluation at x > 0 (yet).
    """
    return Curve.from_points(
        np.where(column(evaluations, "step") == 0, 0.0, x),
        column(evaluations, "pass_rate"),
        column(evaluations, "standard_error"),
        name=name,
        truncation_ratio=known_truncation(column(evaluations, "truncation_ratio")),
    )
