"""Answers of the HTTP API, made from snapshots."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rollcast.config.json_text import finite_or_none
from rollcast.curves.amounts import interval
from rollcast.curves.answer import (
    LawAnswer,
    compute_to_target,
    law_as_json,
    law_of_run,
    state_as_json,
)
from rollcast.curves.evaluations import TrainerStatus
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.forecaster.board import tokens_by_staleness
from rollcast.forecaster.history import KeptForecast
from rollcast.forecaster.schema import (
    AdviceAnswer,
    CurveAnswer,
    End,
    ForecastAnswer,
    Gain,
    Interval,
    PastAnswer,
    PastEnd,
    Point,
    PointsAnswer,
    Prediction,
    StalenessBucket,
    StatusAnswer,
    TargetAnswer,
    Trace,
)
from rollcast.recipe.group_signal import came_back_in_words
from rollcast.runfolder.event_log import RunEvent
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.baselines import power_law
from rollcast.scaling.law.curve import Array

_made: WeakKeyDictionary[RunForecast, ForecastAnswer] = WeakKeyDictionary()
"""A snapshot never changes, and every open page asks for all of them at every change."""


def quantiles(values: Array | tuple[float, ...]) -> Interval:
    """`values`: one for each of the five levels."""
    return Interval(**interval(values, QUANTILES))


def law_fields(law: LawAnswer | None) -> dict[str, Any]:
    """The fields of an answer that hold the law; all are null if no law describes the curve."""
    return law_as_json(law) | {"initial": None if law is None else law.initial["q50"]}


def forecast_answer(item: RunForecast) -> ForecastAnswer:
    answer = _made.get(item)
    if answer is None:
        answer = _made[item] = _forecast_answer(item)
    return answer


def _forecast_answer(item: RunForecast) -> ForecastAnswer:
    newest = item.newest
    answer = state_as_json(item) | law_fields(law_of_run(item))
    answer["pass_rate"] = newest.pass_rate
    return ForecastAnswer(
        **answer,
        run=item.name,
        dataset=newest.dataset,
        step=newest.step,
        sequence=item.sequence,
        updated_at=item.updated_at,
        num_lost=item.num_lost,
        num_incomplete=item.num_incomplete,
        advice=AdviceAnswer(**item.advice().to_dict()),
        end=None if item.end is None or not item.has_forecast else _end(item, item.end),
    )


def _end(item: RunForecast, compute: float) -> End:
    gain = None
    if item.forecast.verdict.is_described:
        mean, low, high = item.expected_gain(compute)
        gain = Gain(mean=mean, q05=low, q95=high)
    return End(compute=compute, gain=gain, **interval(item.reading([compute])[:, 0], QUANTILES))


def predictions(item: RunForecast, compute: list[float]) -> list[Prediction]:
    return prediction_list(compute, item.forecast.verdict, item.reading, item.law)


def prediction_list(
    compute: list[float],
    verdict: Verdict,
    reading: Callable[[list[float]], Array],
    law: Callable[[list[float]], Array],
) -> list[Prediction]:
    """The predictions at `compute` (m,), for which `reading` and `law` return (5, m) quantiles.

    Each is called only if the verdict allows its answer.
    """
    if not compute:
        return []
    laws: list[Interval | None] = [None] * len(compute)
    if verdict.is_described:
        laws = [quantiles(values) for values in law(compute).T]
    readings = np.full((len(QUANTILES), len(compute)), np.nan)
    if verdict.has_predictions:
        readings = reading(compute)
    return [
        Prediction(compute=compute_value, reading=quantiles(values), law=law_interval)
        for compute_value, values, law_interval in zip(compute, readings.T, laws, strict=True)
    ]


def points_answer(item: RunForecast) -> PointsAnswer:
    return PointsAnswer(
        run=item.name,
        num_lost=item.num_lost,
        num_incomplete=item.num_incomplete,
        points=[
            Point.model_validate(evaluation, from_attributes=True)
            for evaluation in item.evaluations
        ],
    )


def curve_answer(item: RunForecast, until: float | None) -> CurveAnswer:
    """The curve from just before the first evaluation to `until`, by default 1.1 times the budget
    or 3.3 times now.

    The newest evaluation is one of its computes. It ends there if the run broke, and is empty
    before there is anything to forecast from.
    """
    if item.forecast.verdict.num_missing:
        nothing = bands(np.empty((len(QUANTILES), 0)))
        return CurveAnswer(
            run=item.name, sequence=item.sequence, compute=[], law=None, power_law=[], **nothing
        )
    positive = [e.compute for e in item.evaluations if e.compute > 0 and e.step > 0]
    stop = until or max((item.end or 3 * item.newest.compute) * 1.1, 1.1 * item.newest.compute)
    if not item.has_forecast:
        stop = min(stop, item.newest.compute)
    stop = max(stop, 1.01 * positive[0])
    # Half of the points are dense in the logarithm, for the bend of the law; the others are even,
    # for a linear axis. Points of the curve that is sent, half of them before now
    half = 121 // 2
    dense = np.geomspace(positive[0] / 3, stop, half + 1)
    even = np.linspace(positive[0] / 3, stop, half)
    compute = np.unique(np.concatenate([dense, even, [min(item.newest.compute, stop)]]))
    readings = item.reading(compute)
    contrast = power_law(item.forecast.curve).pass_rate(item.axis.to_fitted(compute))
    return CurveAnswer(
        run=item.name,
        sequence=item.sequence,
        compute=compute.tolist(),
        law=item.law(compute, (0.5,))[0].tolist() if item.forecast.verdict.is_described else None,
        power_law=np.clip(contrast, 0.0, 1.0).tolist(),
        **bands(readings),
    )


def target_answer(item: RunForecast, target: float) -> TargetAnswer:
    compute = compute_to_target(item, target)
    if compute is None:
        return TargetAnswer(
            run=item.name, target=target, compute=None, probability=None, probability_in_budget=None
        )
    levels = tuple(np.linspace(0.005, 0.995, 100).tolist())
    reached = item.compute_to_target(target, levels)
    return TargetAnswer(
        run=item.name,
        target=target,
        compute=Interval(**compute),
        probability=float(np.mean(np.isfinite(reached))),
        probability_in_budget=None if item.end is None else float(np.mean(reached <= item.end)),
    )


def past_answer(kept_forecast: KeptForecast) -> PastAnswer:
    end = None
    if kept_forecast.end_compute is not None and kept_forecast.end_reading is not None:
        end = PastEnd(
            compute=kept_forecast.end_compute, **interval(kept_forecast.end_reading, QUANTILES)
        )
    # Files of earlier versions have the numbers of a law with every verdict.
    is_described = (
        VerdictKind(kept_forecast.verdict).is_described and kept_forecast.asymptote is not None
    )
    law = {
        name: interval(getattr(kept_forecast, name), QUANTILES) if is_described else None
        for name in ("asymptote", "headroom")
    }
    return PastAnswer.model_validate(
        {**vars(kept_forecast), **law, "is_described": is_described, "end": end}
    )


def status_answer(
    run: str,
    status: TrainerStatus,
    trace: tuple[Trace, ...],
    episodes: tuple[str, ...],
    events: list[RunEvent],
) -> StatusAnswer:
    fields = {
        name: finite_or_none(value)
        for name, value in vars(status).items()
        if not isinstance(value, dict)
    }
    buckets = [
        StalenessBucket(steps=finite_or_none(bound), tokens=tokens)
        for bound, tokens in tokens_by_staleness(status.staleness)
    ]
    groups = came_back_in_words(status.group_signals)
    return StatusAnswer(
        run=run,
        spent_device_hours=sum(status.spent.values()) if status.spent else None,
        staleness=buckets,
        groups=groups,
        episodes=", ".join(episodes),
        trace=list(trace),
        events=events,
        **fields,
    )


def bands(rows: Array) -> dict[str, list[float]]:
    """`rows`: (5, m), one row for each quantile."""
    return dict(zip(("q05", "q25", "q50", "q75", "q95"), rows.tolist(), strict=True))
