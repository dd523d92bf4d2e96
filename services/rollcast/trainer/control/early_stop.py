"""The opt-in `stop_when`: the run ends by itself once the rest of its budget is not worth it.

evaluation closed --> refit --> rule holds on three refits in a row? --> checkpoint, last evaluation, export

The law is fitted against optimizer steps, not device-hours: what one step costs changes with the fleet, and that is no
learning. No service is asked: a forecaster that is away must not keep a run going, nor end it.
"""

import numpy as np

from rollcast.config.services import Budget, StopWhen
from rollcast.runfolder.records import EvaluationRecord
from rollcast.runfolder.survival import is_complete
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.settings import NUM_AGREEING_REFITS
from rollcast.scaling.decisions.stopping import Refit, StopRule, stop_reason
from rollcast.scaling.law.curve import Array, Curve
from rollcast.telemetry.logging import get_logger

ENDLESS_STEPS_RATIO = 1e6
"""Last step of a run without a budget, over its steps so far."""
log = get_logger()


class EarlyStop:
    """Sees every evaluation; `reason` is why the run should end, or None."""

    def __init__(self, settings: StopWhen, budget: Budget, points: list[list[float]]) -> None:
        """`points`: [step, pass rate, standard error, device-hours] of each evaluation of the surviving history.

        The list is appended to. The last refits are repeated, so that a restart decides as if there had been none.
        """
        self._rule = StopRule(settings.least_gain, settings.on_saturated)
        self._budget = budget
        self._points = points
        self._refits: list[Refit] = []
        self.reason: str | None = None
        for count in range(max(1, len(points) + 1 - NUM_AGREEING_REFITS), len(points) + 1):
            self._judge(points[:count])

    def observe(self, evaluation: EvaluationRecord) -> None:
        """Take in one point, refit, judge. An incomplete one is left out, as the forecaster does."""
        if not is_complete(evaluation.graded_share):
            return
        self._points.append(
            [evaluation.step, evaluation.pass_rate, evaluation.standard_error or 0.0, evaluation.compute_device_hours]
        )
        self._judge(self._points)

    def _judge(self, points: list[list[float]]) -> None:
        step, pass_rate, error, device_hours = np.array(sorted(points)).T
        if step[-1] == 0:
            return
        try:
            forecast = fit(Curve.from_points(step, pass_rate, error))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as problem:
            log.warning("the curve cannot be fitted; stop_when waits for the next evaluation", error=str(problem))
            return
        self._refits.append(Refit.of(forecast, self._last_step(step, device_hours)))
        self.reason = self.reason or stop_reason(self._rule, self._refits)

    def _last_step(self, step: Array, device_hours: Array) -> float:
        """The step at which the budget ends, device-hours converted by what the last third of the steps cost."""
        ends = [ENDLESS_STEPS_RATIO * float(step[-1])]
        if self._budget.steps is not None:
            ends.append(float(self._budget.steps))
        if self._budget.device_hours is not None:
            since = min(step.size - 2, 2 * step.size // 3) if step.size > 1 else 0
            spent = float(device_hours[-1] - device_hours[since])
            if spent > 0:
                left = self._budget.device_hours - float(device_hours[-1])
                ends.append(float(step[-1]) + left * float(step[-1] - step[since]) / spent)
        return min(ends)
