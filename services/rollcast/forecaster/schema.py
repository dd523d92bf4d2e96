"""Models of the HTTP API's requests and answers.

Compute is in device-hours, times are Unix seconds.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rollcast.config.bounds import MOST_COMPUTE
from rollcast.runfolder.event_log import RunEvent
from rollcast.runfolder.samples import SamplesRecord


class Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)


class Refusal(Answer):
    detail: str
    """The mistake, in one sentence."""


class Interval(Answer):
    """Quantiles; null = not reached, or not known."""

    q05: float | None
    q25: float | None
    q50: float | None
    q75: float | None
    q95: float | None


class Law(Answer):
    """One setting of R(C) = initial + (asymptote - initial) / (1 + (midpoint / C)^exponent)."""

    initial: float
    asymptote: float
    exponent: float
    midpoint: float


class Gain(Answer):
    mean: float
    q05: float
    q95: float


class End(Interval):
    """Forecast reading of an evaluation at the end of the budget."""

    compute: float
    gain: Gain | None
    """Gain of the law from now to the end; null if no law describes the curve."""


class GainInterval(Answer):
    q05: float
    q50: float
    q95: float


class StretchAnswer(Answer):
    """A stretch of compute from now on, with its cost and gain."""

    until: float
    """Compute at its end."""
    compute: float
    money: float | None
    """Null without a price."""
    gain: GainInterval | None
    """Gain of the measured level in pass rate; null if nothing is forecast."""


class AdviceAnswer(Answer):
    kind: str
    """stop, continue or wait."""
    headline: str | None
    """Advice in a few words; null before there are enough evaluations for a forecast."""
    evaluations: int
    """Number of evaluations to wait for; 0 for stop and continue."""
    budget: float
    """Compute at which the run would end."""
    is_assumed: bool
    """No budget was set; twice the compute so far is taken."""
    worth: float
    """Gain in pass rate that the rest would be paid for."""
    price: float | None
    """Price of one unit of compute; null without one."""
    level: float
    """Mean of the newest readings, from which every gain is counted."""
    mean_gain: float | None
    """Average gain of the rest if the checkpoint of now is kept in case it loses: the largest
    `worth` with which it pays to continue. Null if there is no rest, or nothing is forecast."""
    chance: float | None
    """Probability that the measured level gains `worth` or more in the rest. With the verdict
    no_learning: the share of such runs of other groups that still took off. Null if there is no
    rest, or nothing is forecast."""
    soon: StretchAnswer
    """The next tenth of the budget."""
    rest: StretchAnswer
    wait: StretchAnswer | None
    """Until the evaluations to wait for have come."""
    reason: str
    change: str
    """Sentence on what would change the advice."""


class FittedAnswer(Answer):
    """The numbers of the law are null if no law describes the curve (`is_described`)."""

    num_points: int
    """Evaluations, those at step 0 included."""
    num_at_start: int
    """How many of these are at step 0: the start of the curve."""
    excluded: int
    """Points before the fitted part."""
    verdict: str
    """too_few, too_early, forecastable, saturated, no_learning, broken, not_sigmoid or
    regime_change."""
    has_forecast: bool
    """Whether readings to come are forecast; if not, there is no end and no band beyond now."""
    missing: int
    """Further evaluations that a forecast needs, of the run or of its part after a change; 0 if
    there is one."""
    is_described: bool
    """Whether the law describes the curve; if not, the numbers of the law are null."""
    is_decidable: bool
    """Whether the numbers are for decisions."""
    reason: str
    initial: float | None
    """R_0, median."""
    asymptote: Interval | None
    ceiling_probability: float | None
    """Probability that gains end within sight; the constants of the law are those of such
    trajectories."""
    exponent: Interval | None
    midpoint: Interval | None
    headroom: Interval | None
    """Asymptote minus the level now; of a curve that a caller sends, minus the law now."""
    best: Law | None
    """Maximum posterior, on the fitted axis."""


class ForecastAnswer(FittedAnswer):
    """The numbers of the law are null if no law describes the curve (`is_described`)."""

    run: str
    dataset: str
    sequence: int
    """Rises with every new forecast of the service."""
    updated_at: float
    """Unix seconds."""
    num_lost: int
    """Evaluations left out because their step is not in the surviving history."""
    num_incomplete: int
    """Evaluations left out because less than 90 % of their prompts were graded."""
    advice: AdviceAnswer
    """On the rest of the run's budget, without a price; /advice answers for others."""
    unit: str
    """Unit of compute."""
    step: int
    compute: float
    """Compute of the newest evaluation."""
    pass_rate: float
    """Pass rate of the newest evaluation."""
    end: End | None
    """The forecast at the end of the budget; null if the run has no budget, or nothing is
    forecast."""
    fitted_on: str
    """device_hours, or another unit of the curve; trained_tokens (scaled to it) if the fleet
    changed."""


class Prediction(Answer):
    compute: float
    reading: Interval
    """Forecast reading of an evaluation."""
    law: Interval | None
    """The pass rate without the noise of an evaluation; null if no law describes the curve."""


class PredictAnswer(Answer):
    run: str
    predictions: list[Prediction]


class Point(Answer):
    step: int
    incarnation: int
    compute: float
    pass_rate: float
    standard_error: float | None
    trained_tokens: float | None
    samples: float | None
    at: float
    truncation_ratio: float | None
    """Share of the rollouts trained on about then that the token budget cut off."""
    start_up: float | None
    """Part of `compute` that starting engines took; null if it was not measured."""


class PointsAnswer(Answer):
    run: str
    num_lost: int
    num_incomplete: int
    points: list[Point]


class Bands(Answer):
    """Quantiles of readings: each list has one value for each compute."""

    compute: list[float]
    q05: list[float]
    q25: list[float]
    q50: list[float]
    q75: list[float]
    q95: list[float]


class CurveAnswer(Bands):
    """A curve to draw: each list has one value for each compute. Empty while a forecast needs more
    evaluations; it ends at the newest evaluation of a run that broke."""

    run: str
    sequence: int
    law: list[float] | None
    """Median of the law; null if no law describes the curve."""
    power_law: list[float]
    """The power law's fit, for contrast; null-free but without an interval."""


class TargetAnswer(Answer):
    run: str
    target: float
    compute: Interval | None
    """Device-hours since the start; null = no law describes the curve, or never reached at that
    quantile."""
    probability: float | None
    """Probability that the law ever reaches the target; null if no law describes the curve."""
    probability_in_budget: float | None
    """Probability that it does so within the budget; null also if the run has no budget."""


class PastEnd(Interval):
    compute: float


class PastAnswer(Answer):
    id: int
    made_at: float
    replayed: bool
    num_points: int
    compute: float
    pass_rate: float
    verdict: str
    is_described: bool
    asymptote: Interval | None
    """Null if no law described the curve then."""
    headroom: Interval | None
    end: PastEnd | None


class HistoryAnswer(Answer):
    run: str
    forecasts: list[PastAnswer]


class PastCurveAnswer(Bands):
    """An earlier forecast with its bands: each list has one value for each compute; empty if
    nothing was forecast.
    """

    forecast: PastAnswer


class Trace(Answer):
    """State of a run at one step, kept in addition to the curve."""

    step: float
    truncation_ratio: float | None
    mean_staleness: float | None


class StalenessBucket(Answer):
    steps: float | None
    """Staleness of the tokens, at most; null = more than the last bound."""
    tokens: float


class StatusAnswer(Answer):
    run: str
    step: float | None
    incarnation: float | None
    budget_steps: float | None
    budget_device_hours: float | None
    spent_device_hours: float | None
    """All that the run ever spent, with starts and lost work; null = not reported."""
    max_staleness: float | None
    longest_group_ratio: float | None
    truncation_ratio: float | None
    interrupted_ratio: float | None
    reward_mean: float | None
    staleness: list[StalenessBucket]
    groups: str
    """How many training groups came back since the trainer started, how many of them are usable,
    and why the others are not; empty if none is known."""
    episodes: str
    """Turns and calls of the newest batch's episodes, and the time in environments; empty without
    any."""
    trace: list[Trace]
    """The last steps seen, oldest first."""
    events: list[RunEvent] = []
    """The last events of the run's folder, newest first; empty if this forecaster does not
    have the folder."""


class SamplesAnswer(Answer):
    run: str
    evaluations: list[SamplesRecord]
    """Newest first. Empty for a run whose folder this forecaster does not have."""
    run_folder: str = ""
    """The run's folder as the forecaster sees it; empty = it cannot."""
    recorded_steps: list[int] = []
    """Steps that the flight recorder kept, which `rollcast replay` computes again."""


class SourceAnswer(Answer):
    """Whether the source answers."""

    up: bool
    message: str
    read_at: float
    """Unix seconds of the last answer; 0 = never."""


class RunsAnswer(Answer):
    source: SourceAnswer
    now: float
    version: str
    """Version of this answer; `after` takes it."""
    runs: list[ForecastAnswer]


Compute = Annotated[float, Field(ge=0, le=MOST_COMPUTE, allow_inf_nan=False)]
PositiveCompute = Annotated[float, Field(gt=0, le=MOST_COMPUTE, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class FitPoint(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    compute: Compute
    pass_rate: Share
    standard_error: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    truncation_ratio: Share | None = None
    """Share of the answers that were cut off; only the verdict looks at it."""


class FitRequest(BaseModel):
    """A curve of one's own."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    points: Annotated[list[FitPoint], Field(min_length=1, max_length=2_000)]
    initial: Share | None = None
    """R_0, fixed; null = the evaluation at compute 0, else fitted."""
    exclude_before: Compute | None = None
    """Device-hours before which points are left out; null = found."""
    num_prompts: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Held-out prompts. Takes no part in the fit, since standard errors are those with the prompts
    held fixed."""
    predict: Annotated[list[PositiveCompute], Field(max_length=200)] = []
    """Computes at which predictions are wanted."""


class FitAnswer(FittedAnswer):
    """The numbers of the law are null if no law describes the curve (`is_described`)."""

    predictions: list[Prediction]
