"""The records in a run's folder: one type for each file, and the one parser of them.

This is format 1. Format 0 lacks some fields of an evaluation, which are None: its start-up,
devices, truncation and start. Unknown fields, of a newer or an older release, are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from rollcast.runfolder.survival import graded_share

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record")
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Measured = Annotated[float, Field(allow_inf_nan=True)]
"""A diagnostic that may overflow; it is written as measured, inf and nan included."""
MAX_FILE_BYTES = 16 << 20
"""Upper limit of a file that holds one record."""
STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def _or_else(replacement: Callable[[], Any]) -> WrapValidator:
    """An invalid value is replaced; the rest of the record is kept."""

    def validate(value: object, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:
            return replacement()

    return WrapValidator(validate)


Unknown = _or_else(lambda: None)
"""An invalid value counts as unknown."""
NoneGiven = _or_else(dict)
"""Invalid numbers count as none."""
EnvironmentMetrics = dict[str, dict[str, float]]
"""Environment -> name -> mean of its own number, over the episodes that gave it."""


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """A line of evaluations.jsonl: one reading of the pass rate."""

    __pydantic_config__ = STRICT

    incarnation: Count
    step: Count
    """The trainer's step when the evaluation was requested."""
    pass_rate: Share
    compute_device_hours: Amount
    """Device-hours of the surviving history when the evaluation was requested."""
    run: str = ""
    """Empty: the folder's run."""
    dataset: str = ""
    environment_reward: Annotated[float | None, Unknown] = None
    """Mean reward on the environment's own scale. None = that is 0 to 1, or there are several
    environments."""
    environment_metrics: Annotated[EnvironmentMetrics, NoneGiven] = field(default_factory=dict)
    standard_error: Annotated[Amount | None, Unknown] = None
    """Standard error of the sampling alone: every evaluation has the same prompts. The forecast's,
    which asks how the pass rate on these prompts goes on."""
    standard_error_new_prompts: Annotated[Amount | None, Unknown] = None
    """Standard error as an estimate for other prompts of the same kind, clustered by prompt. For
    comparing models on a benchmark. Unknown with one prompt."""
    trained_tokens: Annotated[Amount | None, Unknown] = None
    samples: Annotated[Amount | None, Unknown] = None
    """Completions with a verdict: one right answer among fifteen endless loops is one of
    sixteen."""
    start_up_device_hours: Annotated[Amount | None, Unknown] = None
    """Part of `compute_device_hours`: what each incarnation spent before the first rollouts of its
    own weights arrived, and each later engine before it joined."""
    devices: Annotated[Count | None, Unknown] = None
    """Devices of generators and trainer that were allocated when the evaluation was requested."""
    truncation_ratio: Annotated[Share | None, Unknown] = None
    """Rollouts cut off by the token budget, over all of the newest batch then."""
    started_from: Annotated[Count | None, Unknown] = None
    """The step from which its incarnation continued: what older ones made after it is lost."""
    num_prompts: Annotated[Count | None, Unknown] = None
    """Prompts with a verdict: the pass rate and its standard error are theirs."""
    asked_prompts: Annotated[Count | None, Unknown] = None
    generated_tokens: Annotated[Count | None, Unknown] = None
    timed_out: Annotated[Count | None, Unknown] = None
    """Ungraded completions whose judge or parser hung."""
    ungraded: Annotated[Count | None, Unknown] = None
    """Completions without a verdict, because the grader itself failed: they are left out of the
    pass rate."""
    missing_prompts: Annotated[Count | None, Unknown] = None
    """Prompts asked that have no answer: they were given up, or had not come back at the
    deadline."""
    given_up_prompts: Annotated[Count | None, Unknown] = None
    """Missing prompts whose tasks failed too often."""
    truncated_matches: Annotated[Count | None, Unknown] = None
    """Completions that the verifier found right and that the token budget cut off: in the pass rate
    they are wrong."""
    version_min: str = ""
    version_max: str = ""
    at: Annotated[float | None, Unknown] = None
    """Unix seconds when it was closed."""

    @property
    def graded_share(self) -> float | None:
        """Share of the requested prompts that were graded; None if it is unknown.

        Records without `asked_prompts` count the missing ones instead.
        """
        requested_prompts = self.asked_prompts
        if (
            requested_prompts is None
            and self.num_prompts is not None
            and self.missing_prompts is not None
        ):
            requested_prompts = self.num_prompts + self.missing_prompts
        return graded_share(self.num_prompts, requested_prompts)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A line of steps.jsonl: one optimizer step. Means are over the batch as it was received."""

    __pydantic_config__ = STRICT

    step: Count
    at: float | None = None
    """Unix seconds when the step was made."""
    loss: Measured | None = None
    grad_norm: Measured | None = None
    learning_rate: float | None = None
    entropy: Measured | None = None
    reference_kl: Measured | None = None
    """None without a reference model."""
    teacher_kl: Measured | None = None
    """None without a teacher."""
    unique_prompts: Count | None = None
    prompt_uses_mean: Amount | None = None
    logprob_gap_mean: Measured | None = None
    logprob_gap_max: Measured | None = None
    clamped_ratios: Count | None = None
    ratios_cut_low: Measured | None = None
    """Share of the loss tokens, as the next two. Sides: the loss's lower and upper clip, or its
    truncation; None if the loss is a function of the user's own."""
    ratios_cut_high: Measured | None = None
    ratios_masked: Measured | None = None
    effective_sample_share: Measured | None = None
    generator_kl: Measured | None = None
    """Nats per token, KL(generators || trainer)."""
    trained_tokens: Count | None = None
    """Tokens of this step alone."""
    update_seconds: Amount | None = None
    staleness_tokens: dict[int, int] = field(default_factory=dict)
    """Steps old -> trained tokens of that age."""
    reward_mean: float | None = None
    truncation_ratio: Share | None = None
    interrupted_ratio: Share | None = None
    completion_tokens_mean: Amount | None = None
    ungraded_ratio: Share | None = None
    episode_turns_mean: Amount | None = None
    """Turns of the model in an episode. None without episodes, as the next three."""
    episode_calls_mean: Amount | None = None
    malformed_calls_share: Share | None = None
    """Share of the tool calls."""
    environment_seconds_share: Share | None = None
    """Time in environments, as a share of that and the time in sampling."""
    environment_metrics: Annotated[EnvironmentMetrics, NoneGiven] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IncarnationRecord:
    """A line of incarnations.jsonl: a trainer that began to work."""

    __pydantic_config__ = STRICT

    incarnation: Count
    started_from: Count
    """The step from which it continued; 0 for the first."""
    at: float | None = None
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """A line of forecasts.jsonl: the forecast after an evaluation.

    Intervals are (5 %, 50 %, 95 %).
    """

    __pydantic_config__ = STRICT

    incarnation: Count
    step: Count
    """Step of the newest evaluation that the forecast is based on."""
    num_evaluations: Count
    verdict: str
    asymptote: list[float] | None
    """None if no law describes the curve."""
    headroom: list[float] | None
    end: list[float] | None
    """Forecast reading of an evaluation at the end of the budget; None without a budget, or if
    nothing is forecast."""
    end_compute: float | None
    advice: str
    """stop, continue or wait."""
    headline: str | None
    """None before there are enough evaluations for a forecast."""
    reason: str
    chance: float | None
    """Probability that the rest of the budget gains what is required of it."""
    at: float
    """Unix seconds."""
    evaluations: Count = 0
    """Evaluations to wait for; 0 for stop and continue."""


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """logged/KIND.json: how many of the run's records a logger has sent to its destination."""

    __pydantic_config__ = STRICT

    lines: dict[str, Count]
    """Lines sent, by file."""
    run_id: str | None
    """The destination's id of the run."""


@dataclass(frozen=True, slots=True)
class BeforeRecord:
    """before.json: what a run began with, and what that had cost.

    The run's own compute does not include it.
    """

    __pydantic_config__ = STRICT

    source: str
    """A model, or another run."""
    version: str | None = None
    """Version of that run's checkpoint; None = a model."""
    device_hours: Amount | None = None
    """None = not known."""

    @property
    def sentence(self) -> str:
        cost = "an unknown number of" if self.device_hours is None else f"{self.device_hours:.4g}"
        origin = self.source if self.version is None else f"{self.source}, {self.version}"
        return f"before this run: {cost} device-hours ({origin}), no part of the curve"


TaskOutcome = Literal["used", "filtered", "dead", "stale", "redone"]
TaskEvent = (
    Literal["dispatched", "handed_over", "step", "checkpoint", "resumed", "stopped_early"]
    | TaskOutcome
)


@dataclass(frozen=True, slots=True)
class TaskMark:
    """A line of tasks.jsonl: the outcome of tasks, or a mark in the run's history between them.

    `checkpoint` and `resumed` give the surviving history: at `resumed`, drop everything after that
    checkpoint's mark.
    """

    __pydantic_config__ = STRICT

    what: TaskEvent
    at: float | None = None
    """Unix seconds."""
    tasks: list[int] = field(default_factory=list)
    """Sequences."""
    longest: Count | None = None
    """Tokens of the longest rollout of a group that was used or filtered."""
    episodes: dict[str, Count] = field(default_factory=dict)
    """How many episodes of such a group ended for which reason (`EpisodeEnd`). Empty = no
    episodes."""
    failures: dict[str, Count] = field(default_factory=dict)
    """Sentences that say why episodes of such a group failed, and how many failed so."""
    step: Count | None = None
    version: str | None = None
    """Version of a checkpoint, or of the one that was resumed; None when resumed: nothing
    survived."""
    incarnation: Count | None = None
    """The incarnation that resumed."""
    generator: str | None = None
    """The generator that handed tasks over."""
    reason: str | None = None
    """Reason for an early stop, or why a task was filtered, dead or redone."""


@dataclass(frozen=True, slots=True)
class ComputeRecord:
    """compute.json: the device-hours ever allocated, by role, and the devices at that moment."""

    __pydantic_config__ = STRICT

    spent: dict[str, Amount]
    devices: dict[str, Count]
    at: Amount
    """Unix seconds."""
    stopped: bool = False
    """The whole run ended with the process that wrote this: nothing stays allocated."""


def as_json(record: DataclassInstance) -> dict[str, Any]:
    """Plain JSON values; empty fields of a mark are left out."""
    values = asdict(record)
    if isinstance(record, TaskMark):
        return {name: value for name, value in values.items() if value not in (None, [], {})}
    if isinstance(record, StepRecord):
        values["staleness_tokens"] = {
            str(steps): tokens for steps, tokens in record.staleness_tokens.items()
        }
    return values


def parse(line: bytes, kind: type[Record]) -> Record:
    """The record in a line.

    Raises ValueError, in a few words: no JSON object, a field is missing, of another type, or out
    of bounds.
    """
    try:
        record: Record = _adapter(cast(Any, kind)).validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field_path = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{field_path}: {first['msg']}" if field_path else str(first["msg"])
        ) from None
    return record


def read_record(path: Path, kind: type[Record], *, max_bytes: int = MAX_FILE_BYTES) -> Record:
    """The record that a whole file holds.

    Raises OSError as reading does; ValueError as `parse`, or it is too long.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"longer than {max_bytes >> 20} MiB")
    return parse(content, kind)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """One adapter for each kind. Making it takes a thousand times as long as parsing a line."""
    return TypeAdapter(kind)
