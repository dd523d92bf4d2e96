"""A record of the run folder in the form that every logger takes, numbers and texts by name; and
what a logger is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from rollcast.runfolder.records import (
    EnvironmentMetrics,
    EvaluationRecord,
    ForecastRecord,
    StepRecord,
)
from rollcast.runfolder.samples import SampledCompletion, SamplesRecord
from rollcast.telemetry.evaluation_metrics import is_own_curve

QUANTILES = ("low", "median", "high")
_NOT_MEASURED = frozenset({"step", "at", "staleness_tokens", "environment_metrics"})


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of one record."""

    step: int
    at: float
    """Unix seconds."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Finite, by names such as train/loss."""
    texts: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[SampledCompletion, ...] = ()
    samples_of: str = ""
    """Data set of the samples."""
    num_left_out: int = 0
    """Numbers that were not finite."""
    is_repeated: bool = False
    """The optimizer step was made before: entries of it and of later steps belong to a lost
    history."""


def make_step_entry(record: StepRecord, newest: int) -> Entry:
    """`newest`: the last optimizer step so far; -1 = none."""
    values = {
        item.name: getattr(record, item.name)
        for item in fields(record)
        if item.name not in _NOT_MEASURED
    }
    num_tokens = sum(record.staleness_tokens.values())
    if num_tokens:
        values["staleness_mean"] = (
            sum(steps * tokens for steps, tokens in record.staleness_tokens.items()) / num_tokens
        )
    values |= _name_environment_metrics(record.environment_metrics)
    return replace(
        _entry("train", record.step, record.at, values), is_repeated=record.step <= newest
    )


def make_evaluation_entry(record: EvaluationRecord) -> Entry:
    prefix = "eval" if is_own_curve(record.dataset) else f"eval/{record.dataset}"
    names = (
        "pass_rate", "environment_reward", "standard_error", "standard_error_new_prompts",
        "compute_device_hours",
        "samples", "num_prompts", "generated_tokens", "ungraded", "missing_prompts", "devices",
        "incarnation",
    )  # fmt: skip
    values = {name: getattr(record, name) for name in names}
    values |= _name_environment_metrics(record.environment_metrics)
    return _entry(prefix, record.step, record.at, values)


def _name_environment_metrics(metrics: EnvironmentMetrics) -> dict[str, float]:
    return {
        f"environment/{kind}/{name}": value
        for kind, named in metrics.items()
        for name, value in named.items()
    }


def make_samples_entry(record: SamplesRecord) -> Entry:
    return Entry(record.step, record.at, samples=tuple(record.samples), samples_of=record.dataset)


def make_forecast_entry(record: ForecastRecord) -> Entry:
    values = {name: getattr(record, name) for name in ("chance", "num_evaluations", "end_compute")}
    for name, interval in (
        ("asymptote", record.asymptote),
        ("headroom", record.headroom),
        ("end", record.end),
    ):
        values |= {
            f"{name}_{quantile}": value
            for quantile, value in zip(QUANTILES, interval or [], strict=False)
        }
    advice = record.reason if record.headline is None else f"{record.headline}. {record.reason}"
    texts = {"forecast/verdict": record.verdict, "forecast/advice": advice}
    return replace(_entry("forecast", record.step, record.at, values), texts=texts)


def _entry(
    prefix: str, step: int, logged_at: float | None, values: Mapping[str, float | None]
) -> Entry:
    present_values = {
        f"{prefix}/{name}": float(value) for name, value in values.items() if value is not None
    }
    finite_values = {name: value for name, value in present_values.items() if math.isfinite(value)}
    return Entry(
        step, logged_at or 0.0, finite_values, num_left_out=len(present_values) - len(finite_values)
    )


def as_table(samples: tuple[SampledCompletion, ...]) -> Iterator[str]:
    """Lines of a Markdown table. Completions are escaped so that they stay in their cells."""
    yield "| reward | status | tokens | prompt | completion |"
    yield "|---|---|---|---|---|"
    for sample in samples:
        prompt, completion = (_in_a_cell(text) for text in (sample.prompt, sample.completion))
        yield (
            f"| {sample.reward:g} | {sample.status} | {sample.num_tokens} | {prompt} | "
            f"{completion} |"
        )


def _in_a_cell(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "¦").replace("\n", "⏎") + "`"


class RefusedError(Exception):
    """The destination will never accept these entries, so they are not sent again."""


class Destination(Protocol):
    """Every exception except `RefusedError` means that the destination does not answer; the call is
    repeated later.

    `write` may receive the same entries twice: a process that was killed does not know whether the
    last ones arrived.
    """

    @property
    def run_id(self) -> str | None:
        """The destination's name of the run; None before the first `open`."""

    def open(self) -> None:
        """Create or continue the run. Called once, before the first `write`."""

    def write(self, entries: Sequence[Entry]) -> None: ...

    def close(self) -> None:
        """Finish: this process writes no more entries."""
