"""Advice that is asked at half of a run and followed, next to simple rules and to a reference that
knows the end.

The budget is the run's end. `worth` is the gain that the whole rest after half must bring. `stop`
ends the run; `continue` ends the questions, and the run goes to its end; `wait` for n readings asks
again n readings later about the price of the remaining rest. The utility of a run is

    max(0, level at its end - level at half) - worth * share of the rest that was spent

because a team keeps the checkpoint of half if the rest loses. A level is the mean of a tenth of the
readings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rollcast.cli.corpus.curves import CorpusCurve
from rollcast.cli.corpus.protocol import ForecasterAnswer, Question
from rollcast.cli.corpus.windows import SHARES, num_readings_seen
from rollcast.scaling.law.curve import Array

Ask = Callable[[Question], ForecasterAnswer]
ADVICE = "advice"
REFERENCE = "reference"


@dataclass(frozen=True)
class FollowedAdvice:
    """One run at one worth.

    Attributes:
        gain: level at the end minus level at half.
        noise: standard deviation of `gain` if the readings are independent.
        kind, chance: of the first answer.
        ended_at: share of the run's compute at which it ended.
        utility: by rule; the advice is one of them.
        refused: why a question was not answered; the run then goes to its end. None = all were
            answered.
    """

    name: str
    repository: str
    worth: float
    gain: float
    noise: float
    kind: str
    chance: float | None
    ended_at: float
    utility: dict[str, float]
    refused: str | None = None


@dataclass(frozen=True, eq=False)
class HalfRun:
    """A run of which the first `num_seen` readings are half of the compute."""

    curve: CorpusCurve
    num_seen: int

    @property
    def num_level(self) -> int:
        # A level is the mean of the last tenth of the readings; fewer than three would make it
        # noise.
        return max(3, len(self.curve) // 10)

    def level(self, num_readings: int) -> float:
        """Mean of the newest of the first `num_readings`."""
        return float(self.curve.y[max(0, num_readings - self.num_level) : num_readings].mean())

    def spent_share(self, num_readings: int) -> float:
        """Share of the rest after half that is spent at this reading."""
        x = self.curve.x
        half = x[self.num_seen - 1]
        return float((x[num_readings - 1] - half) / (x[-1] - half))

    @property
    def gain(self) -> float:
        return self.level(len(self.curve)) - self.level(self.num_seen)

    @property
    def noise(self) -> float:
        one_reading = np.std(np.diff(self.curve.y)) / np.sqrt(2)
        return float(one_reading * np.sqrt(2 / self.num_level))

    def utility(self, num_readings: int, worth: float) -> float:
        gained = max(0.0, self.level(num_readings) - self.level(self.num_seen))
        return gained - worth * self.spent_share(num_readings)

    def promised_by_slope(self, window_divisor: int) -> float:
        """Gain of the rest if the slope of the last 1/part of the seen readings went on."""
        # Fewer readings would make the slope noise
        count = max(5, self.num_seen // window_divisor)
        x = self.curve.x[: self.num_seen]
        slope = float(
            np.polyfit(x[-count:], self.curve.y[self.num_seen - count : self.num_seen], 1)[0]
        )
        return slope * float(self.curve.x[-1] - x[-1])

    def promised_by_log_slope(self) -> float:
        """Gain of the rest if the slope of all seen readings in ln compute went on."""
        seen_compute = self.curve.compute[: self.num_seen]
        # Added to compute before its logarithm is taken
        slope = np.polyfit(np.log(seen_compute + 1e-9), self.curve.y[: self.num_seen], 1)[0]
        return float(slope * np.log(self.curve.compute[-1] / seen_compute[-1]))


def half_run(curve: CorpusCurve) -> HalfRun | None:
    """None: too short, or without a scale on which a gain means anything."""
    num_seen = None if curve.is_scaled_by_own_range else num_readings_seen(curve, SHARES[-1])
    return None if num_seen is None else HalfRun(curve, num_seen)


def follow(run: HalfRun, worth: float, ask: Ask) -> FollowedAdvice:
    """Ask at half, and do what the answers say."""
    length = len(run.curve)
    answers: list[ForecasterAnswer] = []
    num_readings = run.num_seen
    num_readings_at_end = length
    refused = None
    # Questions on one run; after the last `wait` it goes to its end
    while num_readings < length and len(answers) < 12:
        answer = ask(_question(run, num_readings, worth))
        if answer.refused is not None:
            refused = f"{run.curve.name}, worth {worth:g}: {answer.refused}"
            break
        answers.append(answer)
        assert answer.advice is not None
        if answer.advice.kind != "wait":
            num_readings_at_end = num_readings if answer.advice.kind == "stop" else length
            break
        num_readings = min(length, num_readings + max(1, answer.advice.evaluations or 1))
    first = answers[0].advice if answers else None
    x: Array = run.curve.x
    return FollowedAdvice(
        name=run.curve.name,
        repository=run.curve.repository,
        worth=worth,
        gain=run.gain,
        noise=run.noise,
        kind="continue" if first is None else first.kind,
        chance=None if first is None else first.chance,
        ended_at=float((x[num_readings_at_end - 1] - x[0]) / (x[-1] - x[0])),
        utility={ADVICE: run.utility(num_readings_at_end, worth), **_utility_of_rules(run, worth)},
        refused=refused,
    )


def _question(run: HalfRun, num_readings: int, worth: float) -> Question:
    return Question(
        repository=run.curve.repository,
        metric=run.curve.metric,
        curve=run.curve.beginning_as_csv(num_readings),
        budget=float(run.curve.compute[-1]),
        worth=worth * (1 - run.spent_share(num_readings)),
    )


def _utility_of_rules(run: HalfRun, worth: float) -> dict[str, float]:
    """Rules that are asked once at half."""
    full_run_utility = run.utility(len(run.curve), worth)
    promises = {
        "slope of the last fifth": run.promised_by_slope(5),
        "slope of the last half": run.promised_by_slope(2),
        "slope in log compute": run.promised_by_log_slope(),
    }
    return {
        REFERENCE: max(0.0, run.gain - worth),
        "always continue": full_run_utility,
        "always stop": 0.0,
        **{name: full_run_utility if gain >= worth else 0.0 for name, gain in promises.items()},
    }
