"""Answers of the HTTP API, made from snapshots."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np

from rollcast.curves.reading import TrainerStatus
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.forecaster.board import SourceState, TracePoint, tokens_by_staleness
from rollcast.forecaster.history import KeptForecast
from rollcast.forecaster.schema import (
    AdviceAnswer,
    CurveAnswer,
    End,
    ForecastAnswer,
    Gain,
    Interval,
    Law,
    PastAnswer,
    PastCurveAnswer,
    PastEnd,
    Point,
    PointsAnswer,
    Prediction,
    SourceAnswer,
    StalenessBucket,
    StatusAnswer,
    TargetAnswer,
    Trace,
)
from rollcast.recipe.group_signal import came_back_in_words
from rollcast.scaling.law.baselines import power_law
from rollcast.scaling.law.curve import Array

CURVE_POINTS = 121
_made: WeakKeyDictionary[RunForecast, ForecastAnswer] = WeakKeyDictionary()
"""A snapshot never changes, and every open page asks for all of them at every change."""


def interval(values: Array | tuple[float, ...]) -> Interval:
    return Interval(**_quantiles(values))


def forecast_answer(item: RunForecast) -> ForecastAnswer:
    answer = _made.get(item)
    if answer is None:
        answer = _made[item] = _forecast_answer(item)
    return answer


def _forecast_answer(item: RunForecast) -> ForecastAnswer:
    law, newest = item.forecast, item.newest
    end = None
    if item.end is not None:
        mean, low, high = item.expected_gain(item.end)
        readings = item.reading([item.end])[:, 0]
        end = End(compute=item.end, gain=Gain(mean=mean, q05=low, q95=high), **_quantiles(readings))
    return ForecastAnswer(
        run=item.name,
        dataset=newest.dataset,
        sequence=item.sequence,
        updated_at=item.updated_at,
        num_points=len(item.evaluations),
        num_lost=item.num_lost,
        num_incomplete=item.num_incomplete,
        excluded=law.excluded,
        verdict=str(law.verdict.kind),
        reason=law.verdict.reason,
        advice=AdviceAnswer(**item.advice().to_dict()),
        unit=item.unit,
        step=newest.step,
        compute=newest.compute,
        pass_rate=newest.pass_rate,
        initial=float(law.initial((0.5,))[0]),
        asymptote=interval(law.asymptote(QUANTILES)),
        ceiling_probability=law.ceiling_probability,
        exponent=interval(law.exponent(QUANTILES)),
        midpoint=interval(item.midpoint()),
        headroom=interval(law.headroom(QUANTILES)),
        end=end,
        best=best_law(item),
        fitted_on=item.fitted_on,
    )


def best_law(item: RunForecast) -> Law:
    best = item.forecast.best
    return Law(initial=best.initial, asymptote=best.asymptote, exponent=best.exponent, midpoint=best.midpoint)


def predictions(item: RunForecast, compute: list[float]) -> list[Prediction]:
    if not compute:
        return []
    readings, laws = item.reading(compute), item.law(compute)
    return [
        Prediction(compute=value, reading=interval(readings[:, place]), law=interval(laws[:, place]))
        for place, value in enumerate(compute)
    ]


def points_answer(item: RunForecast) -> PointsAnswer:
    return PointsAnswer(
        run=item.name,
        num_lost=item.num_lost,
        num_incomplete=item.num_incomplete,
        points=[
            Point(
                step=e.step,
                incarnation=e.incarnation,
                compute=e.compute,
                pass_rate=e.pass_rate,
                standard_error=e.standard_error,
                trained_tokens=e.trained_tokens,
                samples=e.samples,
                at=e.at,
                truncation_ratio=e.truncation_ratio,
            )
            for e in item.evaluations
        ],
    )


def curve_answer(item: RunForecast, until: float | None) -> CurveAnswer:
    """From a little before the first evaluation to `until`: by default 1.1 times the budget, or 3 times now."""
    positive = [e.compute for e in item.evaluations if e.compute > 0 and e.step > 0]
    stop = until or max((item.end or 3 * item.newest.compute) * 1.1, 1.1 * item.newest.compute)
    stop = max(stop, 1.01 * positive[0])
    # Dense in the logarithm where the law bends, evenly where the picture is linear.
    half = CURVE_POINTS // 2
    compute = np.unique(
        np.append(np.geomspace(positive[0] / 3, stop, half + 1), np.linspace(positive[0] / 3, stop, half))
    )
    bands = item.reading(compute)
    contrast = power_law(item.forecast.curve).pass_rate(item.axis.to_fitted(compute))
    return CurveAnswer(
        run=item.name,
        sequence=item.sequence,
        compute=compute.tolist(),
        law=item.law(compute, (0.5,))[0].tolist(),
        power_law=np.clip(contrast, 0.0, 1.0).tolist(),
        **_bands(bands),
    )


def target_answer(item: RunForecast, target: float) -> TargetAnswer:
    levels = tuple(np.linspace(0.005, 0.995, 100).tolist())
    reached = item.compute_to_target(target, levels)
    return TargetAnswer(
        run=item.name,
        target=target,
        compute=interval(item.compute_to_target(target)),
        probability=float(np.mean(np.isfinite(reached))),
        probability_in_budget=None if item.end is None else float(np.mean(reached <= item.end)),
    )


def past_answer(past: KeptForecast) -> PastAnswer:
    end = None
    if past.end_compute is not None and past.end_reading is not None:
        end = PastEnd(compute=past.end_compute, **_quantiles(past.end_reading))
    return PastAnswer(
        id=past.id,
        made_at=past.made_at,
        replayed=past.replayed,
        num_points=past.num_points,
        compute=past.compute,
        pass_rate=past.pass_rate,
        verdict=past.verdict,
        asymptote=interval(past.asymptote),
        headroom=interval(past.headroom),
        end=end,
    )


def past_curve_answer(past: KeptForecast, grid: tuple[float, ...]) -> PastCurveAnswer:
    return PastCurveAnswer(forecast=past_answer(past), compute=list(grid), **_bands(np.array(past.band)))


def status_answer(run: str, status: TrainerStatus, trace: tuple[TracePoint, ...]) -> StatusAnswer:
    fields = {name: _finite(value) for name, value in vars(status).items() if not isinstance(value, dict)}
    buckets = [
        StalenessBucket(steps=_finite(bound), tokens=tokens) for bound, tokens in tokens_by_staleness(status.staleness)
    ]
    rows = [
        Trace(step=p.step, truncation_ratio=_finite(p.truncation_ratio), mean_staleness=_finite(p.mean_staleness))
        for p in trace
    ]
    groups = came_back_in_words(status.group_signals)
    return StatusAnswer(run=run, staleness=buckets, groups=groups, trace=rows, **fields)


def source_answer(state: SourceState) -> SourceAnswer:
    return SourceAnswer(up=state.up, message=state.message, read_at=state.read_at)


def _quantiles(values: Array | tuple[float, ...]) -> dict[str, float | None]:
    q05, q25, q50, q75, q95 = (_finite(float(value)) for value in values)
    return {"q05": q05, "q25": q25, "q50": q50, "q75": q75, "q95": q95}


def _bands(rows: Array) -> dict[str, list[float]]:
    q05, q25, q50, q75, q95 = (row.tolist() for row in rows)
    return {"q05": q05, "q25": q25, "q50": q50, "q75": q75, "q95": q95}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
