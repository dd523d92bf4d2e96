"""The alerts; docs/runbook.md has an entry for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from monitoring.promql import series
from rollcast.config.record import STEP_BOUNDS
from rollcast.recipe.staleness import LONGEST_GROUP_WARNING
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.telemetry import (
    autoscaler_metrics,
    episode_metrics,
    forecaster_metrics,
    generator_metrics,
    trainer_metrics,
    wire_metrics,
)
from rollcast.telemetry.metric import Metric

RUN = 'namespace="@NAMESPACE@",run="@RUN@"'
PATIENCE = "@NO_STEP_MINUTES@m"
RUNBOOK = "@RUNBOOK@"
"""Filled in by the chart: the run's namespace and name, monitoring.rules.noStepMinutes,
monitoring.rules.runbookUrl."""
_EACH = "namespace, run"
"""What makes a run: profiles name it, so that two namespaces often have one of the same name."""
MOST_TRUNCATION = 0.10
"""Above this truncation typically destabilises a run (paper A.15)."""
MOST_GAP = STEP_BOUNDS["gap"]
MIN_EFFECTIVE_SHARE = STEP_BOUNDS["few_effective_samples"]
MISSED_READINGS = 3
MAX_FAILURE_SHARE = 0.05
"""Failures of an environment for each of its episodes. Above it the environment is broken; chosen,
not measured."""
MAX_WAITING_SHARE = 0.25
"""Share of the episodes in flight that wait for an environment, above which there are too few
environments."""
MIN_SLOTS_IN_USE = 0.5
"""Share of the engines' slots. Environments that are awaited while fewer slots sample limit the
run."""
COUNT = '{{ $value | printf "%.0f" }}'
NUMBER = '{{ $value | printf "%.3g" }}'
SHARE = "{{ $value | humanizePercentage }}"
"""The value in words. Prometheus' own `humanize` would print 0.078 as 78m."""
_NAME = "{{ with $labels.namespace }}{{ . }}/{{ end }}{{ $labels.run }}"
"""A run of `rollcast up --monitor` has no namespace."""


def _of(metric: Metric, *matchers: str, suffix: str = "") -> str:
    return series(metric, RUN, *matchers, suffix=suffix)


_MEAN_GAP = _of(trainer_metrics.LOGPROB_GAP, 'statistic="mean"')
_STEP = f"max by ({_EACH}) ({_of(trainer_metrics.TRAINER_STEP)})"


@dataclass(frozen=True)
class Alert:
    """Attributes: name; expression; how long it must hold; severity; one sentence with COUNT,
    NUMBER or SHARE.
    """

    name: str
    expression: str
    holds_for: str
    severity: Literal["critical", "warning", "info"]
    summary: str

    @property
    def anchor(self) -> str:
        """Anchor of the runbook's entry."""
        return self.name.lower()

    def rule(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": self.expression + "\n",
            "for": self.holds_for,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": f"Run {_NAME}: {self.summary}",
                "runbook_url": f"{RUNBOOK}#{self.anchor}",
            },
        }


def _while_training(expression: str) -> str:
    """Only between the first step and the end: a trainer that starts or has ended is ignored."""
    return f"{expression}\nand on ({_EACH}) {_STEP} > 0"


def _share_waited(reason: str) -> str:
    matcher = f'for="{reason}"'
    return f"sum by ({_EACH}) (rate({_of(trainer_metrics.TRAINER_WAIT, matcher)}[15m]))"


def _came(metric: Metric, *matchers: str) -> str:
    """`increase` extrapolates, so that its counts are no whole numbers."""
    return f"round(sum by ({_EACH}) (increase({_of(metric, *matchers)}[15m]))) > 0"


def _verdict(*kinds: VerdictKind) -> str:
    matcher = f'verdict=~"{"|".join(kinds)}"'
    return f"max by ({_EACH}) ({_of(forecaster_metrics.FORECAST_VERDICT, matcher)}) == 1"


_DEFECTIVE = 'outcome="defective"'
_FAILED = 'end="failed"'
_FAILURES = (
    f"(sum by ({_EACH}, environment) (rate({_of(episode_metrics.EPISODES, _FAILED)}[15m]))"
    f" + sum by ({_EACH}, environment) (rate({_of(episode_metrics.EPISODE_RESTARTS)}[15m])))"
)
_WAITING = f"sum by ({_EACH}) (avg_over_time({_of(episode_metrics.EPISODES_WAITING)}[15m]))"
_IN_FLIGHT = f"sum by ({_EACH}) (avg_over_time({_of(episode_metrics.EPISODES_IN_FLIGHT)}[15m]))"
_SLOTS_IN_USE = (
    f"sum by ({_EACH}) (avg_over_time({_of(generator_metrics.RUNNING_ROLLOUTS)}[15m]))"
    f" / on ({_EACH}) sum by ({_EACH}) "
    f"(avg_over_time({_of(generator_metrics.GENERATOR_SLOTS)}[15m]))"
)
_AT_THE_END = f"{_STEP} >= on ({_EACH}) max by ({_EACH}) ({_of(trainer_metrics.BUDGET_STEPS)})"
_PAUSED = (
    f"avg by ({_EACH}) (rate({_of(generator_metrics.WEIGHT_PAUSE_SECONDS, suffix='_sum')}[15m]))"
)

ALERTS = (
    Alert(
        "RollcastNoOptimizerStep",
        f"changes(({_STEP})[{PATIENCE}:1m]) == 0\n"
        f"and on ({_EACH}) max by ({_EACH}) ({_of(trainer_metrics.TRAINER_STEP)} offset "
        f"{PATIENCE})\n"
        f"and on ({_EACH}) {_STEP}\n"
        f"unless on ({_EACH}) {_AT_THE_END}",
        "1m",
        "critical",
        "no optimizer step for @NO_STEP_MINUTES@ minutes",
    ),
    Alert(
        "RollcastTrainerAway",
        (
            f"count by ({_EACH}) ({_of(generator_metrics.RUNNING_ROLLOUTS)})\nunless on ({_EACH}) "
            f"{_STEP}"
        ),
        PATIENCE,
        "critical",
        (
            f"{COUNT} generators hold devices, and no trainer has answered for @NO_STEP_MINUTES@ "
            "minutes"
        ),
    ),
    Alert(
        "RollcastStalenessNearBound",
        _while_training(
            f"max by ({_EACH}) (avg_over_time({_of(trainer_metrics.LONGEST_GROUP_RATIO)}[10m])) "
            f"> {LONGEST_GROUP_WARNING:g}"
        ),
        "10m",
        "warning",
        f"the longest groups take {SHARE} of the steps that the bound on staleness leaves",
    ),
    Alert(
        "RollcastTrainerStarved",
        _while_training(f"{_share_waited('batch')} > 0.1"),
        "15m",
        "warning",
        f"the trainer waits for rollouts {SHARE} of its time",
    ),
    Alert(
        "RollcastGeneratorsIdle",
        _while_training(
            f"avg by ({_EACH}) (rate({_of(generator_metrics.GENERATOR_IDLE)}[15m])) > 0.3"
        )
        + f"\nand on ({_EACH}) changes(({_STEP})[30m:1m]) > 0",
        "30m",
        "warning",
        f"generators have had nothing to sample {SHARE} of their time",
    ),
    Alert(
        "RollcastGeneratorParked",
        f"sum by ({_EACH}) ({_of(generator_metrics.GENERATOR_PARKED)}) > 0",
        "0m",
        "critical",
        (
            f"{COUNT} generators have ended their engines for want of memory and hold devices for "
            "nothing"
        ),
    ),
    Alert(
        "RollcastWrongNumbers",
        f"time() - max by ({_EACH}) ({_of(trainer_metrics.WRONG_NUMBERS)}) < 3600",
        "0m",
        "critical",
        (
            "the trainer ended for wrong numbers in the last hour and has gone back to its newest "
            "checkpoint"
        ),
    ),
    Alert(
        "RollcastUpdatesSkipped",
        _came(trainer_metrics.UPDATES_SKIPPED),
        "0m",
        "warning",
        f"the gradient of {COUNT} batches in a quarter of an hour was not finite",
    ),
    Alert(
        "RollcastGradientSpikes",
        _came(trainer_metrics.GRADIENT_SPIKES),
        "0m",
        "warning",
        f"{COUNT} gradients in a quarter of an hour were more than 10 times as long as usual",
    ),
    Alert(
        "RollcastLogprobGap",
        _while_training(f"max by ({_EACH}) (avg_over_time({_MEAN_GAP}[15m])) > {MOST_GAP:g}"),
        "10m",
        "warning",
        f"trainer and generators differ by {NUMBER} nats a token",
    ),
    Alert(
        "RollcastFewEffectiveSamples",
        _while_training(
            f"min by ({_EACH}) (avg_over_time({_of(trainer_metrics.EFFECTIVE_SAMPLE_SHARE)}[15m])) "
            f"< {MIN_EFFECTIVE_SHARE:g}"
        ),
        "10m",
        "warning",
        f"the ratios of trainer to generators leave {SHARE} of the batch as effective sample size",
    ),
    Alert(
        "RollcastTruncation",
        _while_training(
            f"max by ({_EACH}) (avg_over_time({_of(trainer_metrics.TRUNCATION_RATIO)}[15m])) > "
            f"{MOST_TRUNCATION:g}"
        ),
        "10m",
        "warning",
        f"{SHARE} of the rollouts are cut off by the token budget",
    ),
    Alert(
        "RollcastQueueBytes",
        _while_training(
            f"max by ({_EACH}) ({_of(wire_metrics.QUEUE_BYTES)})\n"
            f"/ on ({_EACH}) max by ({_EACH}) ({_of(wire_metrics.QUEUE_MAX_BYTES)}) > 0.8"
        ),
        "5m",
        "warning",
        f"finished rollouts fill {SHARE} of what the queue may hold",
    ),
    Alert(
        "RollcastUnusableAnswers",
        _while_training(
            f"({_came(wire_metrics.UNREADABLE)} or {_came(trainer_metrics.GROUPS, _DEFECTIVE)})"
        ),
        "0m",
        "warning",
        f"{COUNT} entries or answers came in a quarter of an hour that could not be used",
    ),
    Alert(
        "RollcastWeightSyncSlow",
        _while_training(f"({_share_waited('weights')} > 0.05 or {_PAUSED} > 0.05)"),
        "15m",
        "warning",
        f"new weights cost {SHARE} of the time of the trainer or of the generators",
    ),
    Alert(
        "RollcastEnvironmentFails",
        f"max by ({_EACH}) ({_FAILURES}\n"
        f"/ on ({_EACH}, environment) sum by ({_EACH}, environment) "
        f"(rate({_of(episode_metrics.EPISODES)}[15m])))"
        f" > {MAX_FAILURE_SHARE:g}\n"
        f"and on ({_EACH}) {_STEP}",
        "10m",
        "warning",
        f"an environment fails: {SHARE} of its episodes began again or were given up",
    ),
    Alert(
        "RollcastEnvironmentsStarveEngines",
        _while_training(
            f"({_WAITING} / on ({_EACH}) {_IN_FLIGHT} > {MAX_WAITING_SHARE:g}\n"
            f"and on ({_EACH}) {_SLOTS_IN_USE} < {MIN_SLOTS_IN_USE:g})"
        ),
        "15m",
        "warning",
        f"{SHARE} of the episodes wait for an environment while slots of the engines are free",
    ),
    Alert(
        "RollcastSaturated",
        _while_training(_verdict(VerdictKind.SATURATED)),
        "30m",
        "info",
        (
            "the forecast says that the run is saturated; what the rest of the budget gains is on "
            "the dashboard"
        ),
    ),
    Alert(
        "RollcastForecastDrifted",
        _while_training(
            f"max by ({_EACH}) ({_of(forecaster_metrics.FORECAST_MISSED)}) >= {MISSED_READINGS}"
        ),
        "0m",
        "warning",
        f"the last {COUNT} readings lie outside the 90 % interval that had been forecast for them",
    ),
    Alert(
        "RollcastCurveBroken",
        _while_training(_verdict(VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID)),
        "10m",
        "warning",
        "the curve of pass rates has collapsed or declines; no forecast holds for it: go back to a "
        "checkpoint before "
        "its peak",
    ),
    Alert(
        "RollcastForecasterBlind",
        _while_training(f"max by ({_EACH}) ({_of(forecaster_metrics.FORECAST_SOURCE_UP)}) == 0"),
        "15m",
        "warning",
        "the forecaster cannot read its source; the forecast stands still",
    ),
    Alert(
        "RollcastAutoscalerBlind",
        _while_training(
            f"(max by ({_EACH}) ({_of(autoscaler_metrics.AUTOSCALER_MEASURED)}) == 0\n"
            f"or sum by ({_EACH}) (increase({_of(autoscaler_metrics.AUTOSCALER_FAILURES)}[15m])) > "
            "0)"
        ),
        "30m",
        "warning",
        (
            "the autoscaler cannot measure the run or change the number of generators; the number "
            "is held"
        ),
    ),
)


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines as blocks."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def rules_file() -> str:
    """The text of helm/rollcast/files/rules.yaml."""
    head = (
        "# Written by `python -m monitoring` from monitoring/alerts.py; what each means stands in "
        "docs/runbook.md.\n"
    )
    groups = {"groups": [{"name": "rollcast", "rules": [alert.rule() for alert in ALERTS]}]}
    return head + yaml.dump(groups, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
