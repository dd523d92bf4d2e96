"""Compare: runs and ablations side by side."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring import variables
from monitoring.panels import HOURS, SHARE, Query, assemble, curve, lines, rows
from monitoring.promql import (
    OWN_CURVE,
    band_by_compute,
    last,
    last_of_forecast,
    last_of_law,
    mean,
    newest_evaluation,
    readings_by,
    series,
    stacked,
)
from monitoring.variables import RUNS
from rollcast.telemetry import evaluation_metrics, forecaster_metrics, trainer_metrics
from rollcast.telemetry.metric import Metric

RATE = "$__rate_interval"
RANGE = "$__range"
_MEDIAN = 'quantile="0.5"'
_POINTS: dict[str, Any] = {"custom.drawStyle": "points", "custom.pointSize": 5}


def _last(metric: Metric, *matchers: str) -> Query:
    return Query(last(metric, RUNS, *matchers), once=True)


def _last_of_law(metric: Metric, *matchers: str) -> Query:
    return Query(last_of_law(metric, RUNS, *matchers), once=True)


def _table() -> Any:
    columns = {
        "A 5 %": _last_of_law(forecaster_metrics.FORECAST_ASYMPTOTE, 'quantile="0.05"'),
        "A": _last_of_law(forecaster_metrics.FORECAST_ASYMPTOTE, _MEDIAN),
        "A 95 %": _last_of_law(forecaster_metrics.FORECAST_ASYMPTOTE, 'quantile="0.95"'),
        "Headroom": _last_of_law(forecaster_metrics.FORECAST_HEADROOM, _MEDIAN),
        "At the end": Query(
            last_of_forecast(forecaster_metrics.FORECAST_END, RUNS, _MEDIAN), once=True
        ),
        "Newest reading": Query(
            newest_evaluation(evaluation_metrics.EVAL_PASS_RATE, RUNS, OWN_CURVE, window=RANGE),
            once=True,
        ),
        "Device-hours": Query(
            f"sum by (run) ({last(trainer_metrics.COMPUTE_STATE, RUNS, by='run, role')})", once=True
        ),
        "Steps": _last(trainer_metrics.TRAINER_STEP),
        "Evaluations": _last(forecaster_metrics.FORECAST_POINTS),
    }
    verdict = Query(
        f"{last(forecaster_metrics.FORECAST_VERDICT, RUNS, by='run, verdict')} == 1", once=True
    )
    values = {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(columns)}
    hidden = f"Value #{chr(ord('A') + len(columns))}"
    return rows(
        "Runs",
        "Compare by A first: runs differ only beyond 0.02 or their intervals. Where A is the same, "
        "compare the "
        "compute at which they get there. `rollcast compare` says it with intervals for each pair.",
        [*columns.values(), verdict],
        [
            ("merge", {}),
            (
                "organize",
                {
                    "excludeByName": {"Time": True, hidden: True},
                    "renameByName": {"run": "Run", "verdict": "Verdict", **values},
                },
            ),
        ],
        width=24,
        overrides={name: {"decimals": 0} for name in ("Steps", "Evaluations")},
    )


def _by_run(expression: str) -> list[Query]:
    return [Query(expression, "{{run}}")]


def _gauge_by_run(metric: Metric, *matchers: str) -> list[Query]:
    return _by_run(f"max by (run) ({series(metric, RUNS, *matchers)})")


def compare_dashboard() -> Dashboard:
    forecasts = [
        _table(),
        curve(
            "Pass rate against compute",
            "Points: evaluations. Lines: the median of each run's forecast.",
            stacked(
                [
                    (band_by_compute(RUNS, RANGE, _MEDIAN), "$1 forecast", "run"),
                    (readings_by(evaluation_metrics.EVAL_COMPUTE, RUNS, RANGE), "$1", "run"),
                ]
            ),
            abscissa=HOURS,
            width=12,
            height=11,
            overrides={"/^(?!.* forecast$).*/": _POINTS},
        ),
        curve(
            "Pass rate against trained tokens",
            "The same readings by trained tokens instead of cost: recipes that filter more get "
            "further "
            "with fewer tokens.",
            stacked(
                [(readings_by(evaluation_metrics.EVAL_TRAINED_TOKENS, RUNS, RANGE), "$1", "run")]
            ),
            abscissa="trained tokens",
            width=12,
            height=11,
            overrides={"/.*/": _POINTS},
        ),
        lines(
            "A, as it was forecast",
            "Median of the asymptote at each moment.",
            _gauge_by_run(forecaster_metrics.FORECAST_ASYMPTOTE, _MEDIAN),
            width=12,
            unit=SHARE,
        ),
        lines(
            "The end, as it was forecast",
            "Median of the reading at the end of the budget at each moment.",
            _gauge_by_run(forecaster_metrics.FORECAST_END, _MEDIAN),
            width=12,
            unit=SHARE,
        ),
    ]
    behaviour = [
        lines(
            "Optimizer steps an hour",
            "What each run delivers.",
            _by_run(
                "3600 * sum by (run) "
                f"(rate({series(trainer_metrics.STEP_SECONDS, RUNS, suffix='_count')}[{RATE}]))"
            ),
            width=8,
            bounds=(0, None),
        ),
        lines(
            "The trainer's waiting",
            "Share of its time, whatever it waited for.",
            _by_run(f"sum by (run) (rate({series(trainer_metrics.TRAINER_WAIT, RUNS)}[{RATE}]))"),
            width=8,
            unit=SHARE,
            bounds=(0, 1),
        ),
        lines(
            "Mean staleness",
            "Steps, of trained tokens.",
            _by_run(mean(trainer_metrics.STALENESS, RUNS, RATE)),
            width=8,
            bounds=(0, None),
        ),
        lines(
            "Reward",
            "Mean of the batch before filtering.",
            _gauge_by_run(trainer_metrics.REWARD_MEAN),
            width=8,
        ),
        lines(
            "Entropy",
            "Of the policy, in nats.",
            _gauge_by_run(trainer_metrics.ENTROPY),
            width=8,
            bounds=(0, None),
        ),
        lines(
            "Truncation",
            "Share of rollouts cut off by the token budget.",
            _gauge_by_run(trainer_metrics.TRUNCATION_RATIO),
            width=8,
            unit=SHARE,
            bounds=(0, None),
        ),
    ]
    return assemble(
        "compare",
        "Compare",
        "Runs and ablations side by side: the end of each, its cost, its behaviour.",
        [("Where will they end?", forecasts), ("How they behave", behaviour)],
        [variables.data_source(), variables.namespace(), variables.runs()],
        time=("now-7d", "now"),
    )
