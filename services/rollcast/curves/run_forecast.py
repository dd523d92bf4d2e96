"""One run's forecast at one moment, asked in device-hours whatever the law was fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from rollcast.curves.axis import MIN_INTERVALS, ComputeAxis, column, compute_per_step, make_curve
from rollcast.curves.best_checkpoint import best_in_words, levels_at
from rollcast.curves.evaluations import OWN, CurvePoint, Origin, RunHistory
from rollcast.curves.way_back import way_back
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.scaling.decisions.advice import Advice, EarlierAdvice, advise
from rollcast.scaling.decisions.digits import compute_in_words
from rollcast.scaling.decisions.falls import GO_BACK
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import DEVICE_HOURS, Array
from rollcast.scaling.posterior.options import FitOptions

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
USUAL_FACTORS = (2.0, 4.0)
"""Times the compute so far at which readings are predicted if the user names no compute."""


@dataclass(frozen=True)
class RunBudget:
    """When a run ends: at the first of these; None = no bound."""

    steps: float | None = None
    device_hours: float | None = None

    def end(self, evaluations: Sequence[CurvePoint]) -> float | None:
        """Device-hours at which the budget ends, steps converted by the measured device-hours per
        step.
        """
        ends = [] if self.device_hours is None else [self.device_hours]
        rate = compute_per_step(evaluations)
        if self.steps is not None and rate is not None:
            ends.append(evaluations[-1].compute + (self.steps - evaluations[-1].step) * rate)
        end = min(ends, default=None)
        # A budget of fewer steps than were made may convert to a negative amount.
        return end if end is not None and end > 0 else None

    def rest_after(self, evaluations: Sequence[CurvePoint]) -> "RunBudget":
        """The same, or no bound if the run has reached it: what a rest could be is then unknown."""
        end = self.end(evaluations)
        return RunBudget() if end is not None and end <= evaluations[-1].compute else self

    def evaluations_left(self, evaluations: Sequence[CurvePoint]) -> int | None:
        """Evaluations until the last step, at their recent spacing in steps; None if no step ends
        the run.
        """
        steps = column(evaluations, "step")
        spacings = np.diff(np.unique(steps))[-MIN_INTERVALS:]
        if self.steps is None or spacings.size == 0:
            return None
        return max(int(np.ceil((self.steps - float(steps.max())) / float(np.median(spacings)))), 0)


@dataclass(frozen=True, eq=False)
class RunForecast:
    """A snapshot; never changes.

    Attributes:
        name: the run, followed by ":dataset" for every data set except the first.
        sequence: rises with every snapshot of the service.
        updated_at: Unix seconds.
        evaluations: of the surviving history, in order of compute; those at compute 0 too.
        num_lost: evaluations that left the curve with their incarnation.
        num_incomplete: evaluations left out because too few of their prompts were graded.
        end: device-hours at which the budget ends, or None.
        origin: what the source was read as.
        worth, price: as in `advise`, if the run's owner gave them.
        evaluations_left: until the budget ends, if its last step is known.
        last_advice: on the run's own terms, before the newest evaluation.
        end_reason: why the run ended before its budget; None = it did not.
        kept_checkpoints: its checkpoints; None = not known.
    """

    name: str
    sequence: int
    updated_at: float
    evaluations: Sequence[CurvePoint]
    num_lost: int
    forecast: Forecast
    axis: ComputeAxis
    end: float | None
    origin: Origin = OWN
    worth: float | None = None
    price: float | None = None
    num_incomplete: int = 0
    evaluations_left: int | None = None
    last_advice: EarlierAdvice | None = None
    end_reason: str | None = None
    kept_checkpoints: KeptCheckpoints | None = None

    @property
    def unit(self) -> str:
        """What compute is counted in."""
        return self.forecast.curve.unit

    @property
    def fitted_on(self) -> str:
        """The quantity that the law is fitted on: the unit of the curve, or trained tokens if the
        fleet changed.
        """
        is_tokens = self.axis.quantity == "trained_tokens"
        return self.axis.quantity if is_tokens or self.unit == DEVICE_HOURS else self.unit

    @property
    def newest(self) -> CurvePoint:
        return self.evaluations[-1]

    @property
    def num_at_start(self) -> int:
        """Evaluations at step 0, which are the start of the curve and not points of it."""
        return len(self.evaluations) - len(self.forecast.curve)

    @property
    def has_forecast(self) -> bool:
        """Whether readings to come are forecast; see `Verdict.has_forecast`."""
        return self.forecast.verdict.has_forecast

    @property
    def usual_computes(self) -> list[float]:
        """Computes at which readings are predicted if none are named: twice and four times the
        newest one.
        """
        return (
            [factor * self.newest.compute for factor in USUAL_FACTORS] if self.has_forecast else []
        )

    def reading(self, compute: ArrayLike, quantiles: tuple[float, ...] = QUANTILES) -> Array:
        """What an evaluation at `compute` (m,) will read -> (q, m)."""
        return self.forecast.predictive(self.to_fitted(compute), quantiles)

    def law(self, compute: ArrayLike, quantiles: tuple[float, ...] = QUANTILES) -> Array:
        """The law at `compute` (m,) -> (q, m)."""
        return self.forecast.pass_rate(self.to_fitted(compute), quantiles)

    def midpoint(self, quantiles: tuple[float, ...] = QUANTILES) -> Array:
        """C_mid (q,)."""
        return self.axis.to_device_hours(self.forecast.midpoint(quantiles))

    def headroom(self, quantiles: tuple[float, ...] = QUANTILES) -> Array:
        """A minus the level now, from which the advice counts every gain -> (q,)."""
        # Lower quantiles of the asymptote may be below the level now, but a loss is no headroom.
        return np.maximum(self.forecast.asymptote(quantiles) - self.advice().level, 0.0)

    def compute_to_target(self, target: float, quantiles: tuple[float, ...] = QUANTILES) -> Array:
        """Device-hours since the start until the law reaches `target` (q,); inf
        if it never does.
        """
        return self.axis.to_device_hours(self.forecast.compute_to_target(target, quantiles))

    def expected_gain(self, stop: float) -> tuple[float, float, float]:
        """R(stop) - R(now): mean, 5 % and 95 % quantile."""
        # A stop that has passed gains nothing; without the maximum it would look like a loss.
        start, end = self.to_fitted([self.newest.compute, max(stop, self.newest.compute)])
        return self.forecast.expected_gain(float(start), float(end))

    def advice(
        self, budget: float | None = None, worth: float | None = None, price: float | None = None
    ) -> Advice:
        """What to do with the rest of the budget. A value that is not given is the run's own; see
        `advise`.

        Raises ValueError as `advise`.
        """
        if budget is None and worth is None and price is None:
            return self._advice
        return self.with_budget(budget)._advise(worth, price)

    @cached_property
    def _advice(self) -> Advice:
        """On the run's own terms, made once: page and metrics ask for it again and again."""
        return self._advise(last=self.last_advice, end_reason=self.end_reason)

    def _advise(
        self,
        worth: float | None = None,
        price: float | None = None,
        last: EarlierAdvice | None = None,
        end_reason: str | None = None,
    ) -> Advice:
        """The advice on a run that broke, or that `stop_when` ended, names the best checkpoint."""
        advice = advise(
            self.forecast,
            self.end,
            worth=self.worth if worth is None else worth,
            price=self.price if price is None else price,
            axis=self.axis,
            evaluations_left=self.evaluations_left,
            last=last,
            end_reason=end_reason,
        )
        is_broken = self.forecast.verdict.kind is VerdictKind.BROKEN
        # Another budget, worth or price than the run's own asks what would change the answer.
        if self.checkpoint_in_words is None or (end_reason is None and not is_broken):
            return advice
        return replace(advice, change=self.checkpoint_in_words)

    @cached_property
    def checkpoint_in_words(self) -> str | None:
        """The sentence on the best checkpoint; None if the run neither broke nor was ended by
        `stop_when`, or if its checkpoints are not known.
        """
        verdict = self.forecast.verdict
        if self.kept_checkpoints is None:
            return None
        if verdict.kind is VerdictKind.BROKEN and verdict.at is not None:
            peak = float(self.axis.to_device_hours(np.array([verdict.at]))[0])
            return way_back(self.evaluations, peak, self.kept_checkpoints)
        if self.end_reason is None or not self.kept_checkpoints.steps:
            return None
        return best_in_words(levels_at(self.evaluations, self.kept_checkpoints.steps))

    def with_budget(self, budget: float | None) -> "RunForecast":
        """The same run, of which the user says at which compute it ends; None: as it is."""
        # The evaluations that are left were counted to the end of the old budget.
        return self if budget is None else replace(self, end=budget, evaluations_left=None)

    def to_fitted(self, compute: ArrayLike) -> Array:
        """`compute` (m,) device-hours on the axis that the law is fitted on -> (m,)."""
        return self.axis.to_fitted(np.atleast_1d(np.asarray(compute, dtype=float)))


def forecast_history(history: RunHistory, options: FitOptions | None = None) -> RunForecast:
    """Fit a run that was read once and whole. `options.exclude_before`: device-hours since the
    start.

    Raises ValueError: no evaluation after the first step, or one that cannot be.
    """
    options = options or FitOptions()
    axis, curve = make_curve(history)
    # The user counts in device-hours, but the law may be fitted on tokens.
    if options.exclude_before != "auto":
        fitted = float(axis.to_fitted(np.array([options.exclude_before]))[0])
        options = replace(options, exclude_before=fitted)
    budget = RunBudget(history.budget_steps, history.budget_device_hours).rest_after(
        history.evaluations
    )
    return RunForecast(
        name=history.name,
        sequence=0,
        updated_at=history.evaluations[-1].at,
        evaluations=history.evaluations,
        num_lost=0,
        num_incomplete=history.num_incomplete,
        forecast=_convert_verdict(fit(curve, options), axis, history.kept_checkpoints),
        axis=axis,
        end=budget.end(history.evaluations),
        evaluations_left=budget.evaluations_left(history.evaluations),
        last_advice=history.last_advice,
        end_reason=history.end_reason,
        kept_checkpoints=history.kept_checkpoints,
        origin=history.origin,
    )


def _convert_verdict(
    forecast: Forecast, axis: ComputeAxis, kept_checkpoints: KeptCheckpoints | None
) -> Forecast:
    """The forecast whose verdict names places in the unit of the curve, whatever axis the law is
    fitted on.

    `kept_checkpoints`: if they are known the advice names the checkpoint to go back to, and not the
    verdict.
    """
    verdict = forecast.verdict
    if verdict.at is None:
        return forecast
    unit = forecast.curve.unit
    at = float(axis.to_device_hours(np.array([verdict.at]))[0])
    # The reason is a finished sentence by now, so the place in it is replaced as text.
    reason = verdict.reason.replace(compute_in_words(verdict.at, unit), compute_in_words(at, unit))
    if kept_checkpoints is not None:
        reason = reason.removesuffix(f" {GO_BACK}")
    return replace(forecast, verdict=replace(verdict, reason=reason))


def forecast_run(
    history: RunHistory, budget: RunBudget, *, sequence: int, updated_at: float
) -> RunForecast | None:
    """Fit a run that goes on; None while there is no evaluation after step 0."""
    points = history.evaluations
    if not np.any((column(points, "compute") > 0) & (column(points, "step") > 0)):
        return None
    return replace(
        forecast_history(history),
        sequence=sequence,
        updated_at=updated_at,
        end=budget.end(points),
        evaluations_left=budget.evaluations_left(points),
    )


@dataclass(frozen=True, eq=False)
class ForecastSummary:
    """What metrics and history keep of a forecast, each number for the five quantiles."""

    grid: tuple[float, ...]
    """Computes of the band; none if no readings are forecast."""
    band: Array
    """(5, 40) readings over the run's grid."""
    end: Array | None
    """(5,) readings at the end of the budget; None also if no readings are forecast."""
    asymptote: Array | None
    """(5,); None if no law describes the curve."""
    headroom: Array | None
    """(5,)"""


def look_ahead(forecast: RunForecast, grid: tuple[float, ...]) -> ForecastSummary:
    """All readings in one go: they are most of the work of a refit."""
    law = forecast.forecast
    asymptote = law.asymptote(QUANTILES) if law.verdict.is_described else None
    headroom = forecast.headroom() if law.verdict.is_described else None
    if not forecast.has_forecast:
        return ForecastSummary((), np.empty((len(QUANTILES), 0)), None, asymptote, headroom)
    readings = forecast.reading([*grid] if forecast.end is None else [*grid, forecast.end])
    end = None if forecast.end is None else readings[:, -1]
    return ForecastSummary(grid, readings[:, : len(grid)], end, asymptote, headroom)


def metric_grid(forecast: RunForecast) -> tuple[float, ...]:
    """40 computes, three digits each, chosen once in a run's life: from its first steps to four
    times its budget.

    Without a budget the grid reaches a thousand times the compute of the newest evaluation.
    """
    newest_compute = forecast.newest.compute
    low, high = (
        (forecast.end / 100, 4 * forecast.end)
        if forecast.end
        else (newest_compute / 4, 1000 * newest_compute)
    )
    # Points of the curve that is drawn
    return tuple(float(f"{value:.3g}") for value in np.geomspace(low, high, 40))
