"""The opt-in `stop_when`: the run ends by itself once the rest of its budget is not worth it.

evaluation closed --> refit --> rule holds on three refits in a row?
                                --> checkpoint, last evaluation, export

The law is fitted on the axis of the forecaster and of `fit` (`rollcast.curves.axis`), so their
verdict is the rule's. No service is asked: a forecaster that is away must not keep a run going, nor
end it.
"""

from collections.abc import Sequence

import numpy as np

from rollcast.config.run_end import Budget, StopWhen
from rollcast.curves.axis import make_curve
from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.run_forecast import RunBudget
from rollcast.runfolder.records import EvaluationRecord
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.settings import NUM_AGREEING_REFITS
from rollcast.scaling.decisions.stopping import Refit, StopRule, stop_reason
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.progress import CurveRow, add_reading

log = get_logger()


class EarlyStop:
    """Sees every evaluation; `reason` is why the run should end, or None."""

    def __init__(self, settings: StopWhen, budget: Budget, points: list[CurveRow]) -> None:
        """`points`: each evaluation of the surviving history.

        The list is appended to. The last refits are repeated, so that a restart decides as if there
        had been none.
        """
        self._rule = StopRule(settings.least_gain, settings.on_saturated)
        self._budget = RunBudget(budget.steps, budget.device_hours)
        self._points = points
        self._refits: list[Refit] = []
        self.reason: str | None = None
        for count in range(max(1, len(points) + 1 - NUM_AGREEING_REFITS), len(points) + 1):
            self._judge(points[:count])

    def observe(self, evaluation: EvaluationRecord) -> None:
        """Take in one point, refit, judge; an incomplete one is left out."""
        if add_reading(self._points, evaluation):
            self._judge(self._points)

    def _judge(self, rows: Sequence[CurveRow]) -> None:
        # Evaluations may be closed in another order than they were asked for.
        points = [_point(row) for row in sorted(rows, key=lambda row: row[0])]
        if points[-1].step == 0:
            return
        try:
            axis, curve = make_curve(RunHistory("run", points))
            forecast = fit(curve)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as problem:
            log.warning(
                "the curve cannot be fitted; stop_when waits for the next evaluation",
                error=str(problem),
            )
            return
        # Compute at the end of a run without a budget, over its compute so far
        end = self._budget.end(points) or 1e6 * points[-1].compute
        self._refits.append(
            Refit.from_forecast(forecast, float(axis.to_fitted(np.array([end]))[0]))
        )
        self.reason = self.reason or stop_reason(self._rule, self._refits)


def _point(row: CurveRow) -> CurvePoint:
    step, pass_rate, error, compute, start_up, devices, trained_tokens, truncation = row
    return CurvePoint(
        run="run",
        dataset="",
        incarnation=1,
        step=int(step),
        pass_rate=pass_rate,
        compute=compute,
        standard_error=error,
        trained_tokens=trained_tokens,
        samples=None,
        at=0.0,
        truncation_ratio=truncation,
        start_up=start_up,
        devices=devices,
    )
