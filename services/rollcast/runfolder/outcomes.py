"""Records of a run's end, and of a set of runs."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollcast.runfolder.records import STRICT, Count

NUM_END_EVALUATIONS = 3
"""The measured end is the mean of that many last evaluations."""


@dataclass(frozen=True, slots=True)
class FrozenForecast:
    """frozen_forecast.json: the forecast of the end, made at half of the budget."""

    __pydantic_config__ = STRICT

    step: Count
    curve_until_step: Count
    """Step of the newest evaluation that the forecast is based on."""
    compute_device_hours: float
    end_device_hours: float | None
    verdict: str
    low: float
    """5 % quantile of what an evaluation at the end will read."""
    median: float
    high: float
    """95 % quantile."""
    last_value: float
    """The newest evaluation at that moment: what a forecast must beat."""
    num_evaluations: Count
    at: float
    """Unix seconds."""

    def sentence(self) -> str:
        return (
            f"forecast of the end, frozen at step {self.step} from the curve until "
            f"{self.curve_until_step}: {self.median:.3f} (90 % interval {self.low:.3f} to "
            f"{self.high:.3f}, {self.verdict.replace('_', ' ')}); now {self.last_value:.3f}"
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """result.json: the frozen forecast and the measured end."""

    __pydantic_config__ = STRICT

    initial: float
    measured: float
    """Mean of the last three evaluations."""
    frozen: FrozenForecast | None
    error: float | None
    """Forecast minus measured."""
    last_value_error: float | None
    inside: bool | None
    """Whether the 90 % interval held the end."""
    gain_share_at_freeze: float | None
    """Share of the whole gain that was reached when it was frozen."""
    num_evaluations: Count

    def sentence(self) -> str:
        count = min(self.num_evaluations, NUM_END_EVALUATIONS)
        mean = f", the mean of the last {count} evaluations" if count > 1 else ""
        measured = f"the end: pass rate {self.measured:.3f}{mean} (started at {self.initial:.3f})"
        if self.frozen is None or self.error is None:
            return (
                f"{measured}; no forecast was ready at half of the budget, which takes five "
                "evaluations"
            )
        interval_outcome = "held" if self.inside else "missed"
        return (
            f"{measured}; forecast at step {self.frozen.step} was {self.frozen.median:.3f}, error "
            f"{self.error:+.3f}, its interval {interval_outcome} it; repeating the value of then "
            f"errs by {self.last_value_error:+.3f}"
        )


class State(StrEnum):
    WAITING = "waiting"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class RunRecord:
    """The outcome of one run of a set."""

    __pydantic_config__ = STRICT

    run: str
    variant: str
    what: str
    seed: int
    folder: str
    state: State = State.WAITING
    error: str | None = None
    seconds: float | None = None
    """Duration of this attempt. None = it was not run (again)."""
    initial: float | None = None
    measured: float | None = None
    """Mean pass rate of the last three evaluations."""
    interrupted_ratio: float | None = None
    """Rollouts trained on whose thinking was cut short, over all of them; mean over the steps."""
    null_control: bool = False
    """Whether its recipe is the whole one in effect: its row shows the noise."""


@dataclass(frozen=True, slots=True)
class SetRecord:
    """ablation.json: the progress of a set; once it is finished, its results too."""

    __pydantic_config__ = STRICT

    set: list[RunRecord]
    """The runs, in the order of the plan."""
    runs: list[dict[str, Any]] | None = None
    """The fit of each row."""
    leave_one_out: dict[str, Any] | None = None
    """The table."""
    advice: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    left_behind: dict[str, Any] | None = None
    """By recipe, those of its own settings that stay as the base has them: its value and the
    base's."""
