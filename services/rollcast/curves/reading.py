"""What one look at a source told: evaluations, and the state of the runs around them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rollcast.curves.evaluations import CurvePoint, checked
from rollcast.curves.origin import Origin
from rollcast.runfolder.completeness import graded_share
from rollcast.telemetry import names
from rollcast.telemetry.prometheus_reader import Sample

_EVALUATION_FIELDS = {
    names.EVAL_PASS_RATE.name: "pass_rate",
    names.EVAL_STANDARD_ERROR.name: "standard_error",
    names.EVAL_COMPUTE.name: "compute",
    names.EVAL_TRAINED_TOKENS.name: "trained_tokens",
    names.EVAL_SAMPLES.name: "samples",
    names.EVAL_START_UP.name: "start_up",
    names.EVAL_DEVICES.name: "devices",
    names.EVAL_TRUNCATION.name: "truncation_ratio",
    names.EVAL_PROMPTS.name: "num_prompts",
    names.EVAL_ASKED_PROMPTS.name: "asked_prompts",
}
_STATUS_FIELDS = {
    names.TRAINER_STEP.name: "step",
    names.INCARNATION.name: "incarnation",
    names.MAX_STALENESS.name: "max_staleness",
    names.LONGEST_GROUP_RATIO.name: "longest_group_ratio",
    names.TRUNCATION_RATIO.name: "truncation_ratio",
    names.INTERRUPTED_RATIO.name: "interrupted_ratio",
    names.REWARD_MEAN.name: "reward_mean",
    names.BUDGET_STEPS.name: "budget_steps",
    names.BUDGET_DEVICE_HOURS.name: "budget_device_hours",
}
_STALENESS_BUCKET = f"{names.STALENESS.name}_bucket"
EVALUATION_NAMES = tuple(_EVALUATION_FIELDS)
STATUS_NAMES = (*_STATUS_FIELDS, _STALENESS_BUCKET, names.GROUP_SIGNALS.name, names.INCARNATION_START.name)


@dataclass
class TrainerStatus:
    """What a run's trainer says of itself; None = not told."""

    step: float | None = None
    incarnation: float | None = None
    max_staleness: float | None = None
    longest_group_ratio: float | None = None
    truncation_ratio: float | None = None
    interrupted_ratio: float | None = None
    reward_mean: float | None = None
    budget_steps: float | None = None
    budget_device_hours: float | None = None
    staleness: dict[float, float] = field(default_factory=dict)
    """Bound (steps) -> tokens at most that old, cumulative as a histogram's buckets are."""
    group_signals: dict[str, float] = field(default_factory=dict)
    """Training groups that came back since the trainer's process began, by what they can teach."""


@dataclass
class Reading:
    """Evaluations, and by run: status, what a file was read as, the step from which each incarnation continued."""

    evaluations: list[CurvePoint] = field(default_factory=list)
    status: dict[str, TrainerStatus] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    anew: set[str] = field(default_factory=set)
    """Runs whose file was written anew: what stands here is all that it tells, what was told before is void."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of readings that were left out."""
    away: list[str] = field(default_factory=list)
    """One sentence on each part of the source that does not answer while others do."""


def interpret(samples: Iterable[Sample], *, at: float) -> Reading:
    """Put together what belongs together: the gauges of one evaluation carry the same labels."""
    reading = Reading()
    parts: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for sample in samples:
        labels = sample.labels
        run = labels.get("run", "")
        if not run:
            continue
        if sample.name in _EVALUATION_FIELDS:
            key = (run, labels.get("dataset", ""), labels.get("incarnation", ""), labels.get("step", ""))
            parts.setdefault(key, {})[_EVALUATION_FIELDS[sample.name]] = sample.value
        elif math.isfinite(sample.value):
            _note_status(reading, run, sample.name, labels, sample.value)
    for (run, dataset, incarnation, step), values in parts.items():
        if "pass_rate" not in values or "compute" not in values:
            reading.skipped["incomplete"] += 1
            continue
        try:
            evaluation = CurvePoint(
                run=run,
                dataset=dataset,
                incarnation=int(incarnation),
                step=int(step),
                pass_rate=values["pass_rate"],
                compute=values["compute"],
                standard_error=values.get("standard_error"),
                trained_tokens=values.get("trained_tokens"),
                samples=values.get("samples"),
                at=at,
                truncation_ratio=values.get("truncation_ratio"),
                start_up=values.get("start_up"),
                devices=values.get("devices"),
                graded_share=graded_share(values.get("num_prompts"), values.get("asked_prompts")),
            )
            reading.evaluations.append(checked(evaluation))
        except ValueError:
            reading.skipped["out_of_bounds"] += 1
    return reading


def _note_status(reading: Reading, run: str, name: str, labels: Mapping[str, str], value: float) -> None:
    if name in _STATUS_FIELDS:
        setattr(reading.status.setdefault(run, TrainerStatus()), _STATUS_FIELDS[name], value)
        return
    try:
        if name == _STALENESS_BUCKET:
            buckets = reading.status.setdefault(run, TrainerStatus()).staleness
            bound = float(labels.get("le", ""))
            buckets[bound] = buckets.get(bound, 0.0) + value
        elif name == names.GROUP_SIGNALS.name:
            signals = reading.status.setdefault(run, TrainerStatus()).group_signals
            signal = labels.get("signal", "")
            signals[signal] = signals.get(signal, 0.0) + value
        elif name == names.INCARNATION_START.name:
            reading.starts.setdefault(run, {})[int(labels.get("incarnation", ""))] = int(value)
    except ValueError:
        reading.skipped["bad_label"] += 1
