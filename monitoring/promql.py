"""Small pieces of PromQL that dashboards and alerts share."""

from __future__ import annotations

from collections.abc import Iterable

from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.telemetry import evaluation_metrics, forecaster_metrics
from rollcast.telemetry.evaluation_metrics import DOWNSTREAM_PREFIX, ENVIRONMENT_PREFIX, PART_PREFIX
from rollcast.telemetry.metric import Metric

EVALUATION = "run, dataset, incarnation, step"
"""Labels that make an evaluation."""
OWN_CURVE = f'dataset!~"({PART_PREFIX}|{ENVIRONMENT_PREFIX}|{DOWNSTREAM_PREFIX}).*"'


def series(metric: Metric, run: str, *matchers: str, suffix: str = "") -> str:
    """A selector: `run` is the matcher of the label run, `suffix` one of _bucket, _sum, _count for
    a histogram.
    """
    assert bool(suffix) == (metric.kind == "histogram"), metric.name
    return f"{metric.name}{suffix}{{{','.join((run, *matchers))}}}"


def mean(metric: Metric, run: str, window: str, by: str = "run") -> str:
    """Mean of a histogram's observations over `window`."""
    total, count = (
        f"sum by ({by}) (rate({series(metric, run, suffix=suffix)}[{window}]))"
        for suffix in ("_sum", "_count")
    )
    return f"{total} / {count}"


def quantile(share: float, metric: Metric, run: str, window: str, by: str = "run") -> str:
    """Quantile of a histogram's observations over `window`."""
    buckets = f"sum by ({by}, le) (rate({series(metric, run, suffix='_bucket')}[{window}]))"
    return f"histogram_quantile({share:g}, {buckets})"


def newest_evaluation(
    metric: Metric, run: str, *matchers: str, by: str = "run", window: str = ""
) -> str:
    """`metric` of the evaluation with the most compute behind it, for each `by`."""
    here, compute = (
        _last(series(each, run, *matchers), window, EVALUATION)
        for each in (metric, evaluation_metrics.EVAL_COMPUTE)
    )
    return f"max by ({by}) ({here} and on ({EVALUATION}) topk by ({by}) (1, {compute}))"


def readings_by(abscissa: Metric, run: str, window: str) -> str:
    """Pass rates of the run's own curve; the label `at` of each holds the value of `abscissa`, such
    as its compute.
    """
    pass_rate = _last(series(evaluation_metrics.EVAL_PASS_RATE, run, OWN_CURVE), window, EVALUATION)
    at = _last(series(abscissa, run, OWN_CURVE), window, EVALUATION)
    return (
        f'{pass_rate} * on ({EVALUATION}) group_left (at) count_values by ({EVALUATION}) ("at", '
        f"{at} > 0)"
    )


def band_by_compute(run: str, window: str, *matchers: str) -> str:
    """The forecast over the run's grid of computes, which are the label `at`."""
    band = _last(
        series(forecaster_metrics.FORECAST_PASS_RATE, run, *matchers),
        window,
        "run, compute, quantile",
    )
    return f'label_replace({band}, "at", "$1", "compute", "(.*)")'


def stacked(rows: Iterable[tuple[str, str, str]]) -> str:
    """One table of several (expression, name, source label): rows named by the label `series`.

    `name` is the replacement of label_replace, "$1" being the value of the source label.
    """
    named = [
        f'label_replace({expression}, "series", "{name}", "{label}", "(.*)")'
        for expression, name, label in rows
    ]
    return f"max by (series, at) (\n  {chr(10).join(named).replace(chr(10), chr(10) + '  or ')}\n)"


def last(
    metric: Metric, run: str, *matchers: str, window: str = "$__range", by: str = "run"
) -> str:
    """The last value in the dashboard's range, also after the process has ended or if the range
    reaches ahead.
    """
    return _last(series(metric, run, *matchers), window, by)


def last_of_law(metric: Metric, run: str, *matchers: str, by: str = "run") -> str:
    """As `last`, of a metric that is absent if no law describes the curve: the range may hold its
    earlier values.
    """
    described = last(forecaster_metrics.FORECAST_DESCRIBED, run)
    return f"{last(metric, run, *matchers, by=by)} unless on (run) ({described} == 0)"


def last_of_forecast(metric: Metric, run: str, *matchers: str, by: str = "run") -> str:
    """As `last`, of a metric that is absent while readings to come are not forecast."""
    return _last_unless([VerdictKind.TOO_FEW, VerdictKind.BROKEN], metric, run, *matchers, by=by)


def last_chance(run: str) -> str:
    """The last chance that the rest pays; a run that has learned nothing has one without a law."""
    kinds = [
        kind
        for kind in VerdictKind
        if not kind.is_described and kind is not VerdictKind.NO_LEARNING
    ]
    return _last_unless(kinds, forecaster_metrics.ADVICE_CHANCE, run)


def _last_unless(
    kinds: Iterable[VerdictKind], metric: Metric, run: str, *matchers: str, by: str = "run"
) -> str:
    """As `last`, but nothing while the verdict is one of `kinds`."""
    in_force = last(forecaster_metrics.FORECAST_VERDICT, run, f'verdict=~"{"|".join(kinds)}"')
    return f"{last(metric, run, *matchers, by=by)} unless on (run) ({in_force} == 1)"


def _last(selector: str, window: str, by: str) -> str:
    return (
        f"max by ({by}) (last_over_time({selector}[{window}]))"
        if window
        else f"max by ({by}) ({selector})"
    )
