"""A run in words: its progress, the remaining time, its forecast."""

import time

from rollcast.curves.amounts import incomplete_points
from rollcast.local.forecast_reading import ForecastReading, Quantiles
from rollcast.local.frozen_forecast import LEAST_EVALUATIONS, has_law, num_after_first_step
from rollcast.local.progress import Phase
from rollcast.local.status import RunStatus
from rollcast.recipe.group_signal import came_back_in_words
from rollcast.runfolder.records import EvaluationRecord

HOUR = 3600
DAY = 86_400
LEAST_DUE_SECONDS = 0.5
"""An event that is due sooner is shown as due now."""


def duration(seconds: float) -> str:
    """42 s, 3 min 05 s, 2 h 05 min, 3 d 4 h."""
    whole_seconds = max(0, round(seconds))
    minute = 60
    if whole_seconds < minute:
        return f"{whole_seconds} s"
    if whole_seconds < HOUR:
        return f"{whole_seconds // minute} min {whole_seconds % minute:02} s"
    if whole_seconds < DAY:
        return f"{whole_seconds // HOUR} h {whole_seconds % HOUR // minute:02} min"
    return f"{whole_seconds // DAY} d {whole_seconds % DAY // HOUR} h"


def interval(quantiles: Quantiles) -> str:
    low, median, high = quantiles
    return f"{median:.3f} [{low:.3f}, {high:.3f}]"


def step_words(budget_steps: int | None, status: RunStatus) -> str:
    return f"step {status.step:,}" + ("" if budget_steps is None else f" of {budget_steps:,}")


def phase_words(phase: Phase, now_seconds: float) -> str:
    """`engine starts: 12 s` while it does, `engine starts: after 14 s` once it has."""
    seconds = phase.seconds(now_seconds)
    if seconds is None:
        return f"{phase.name}: waits"
    return f"{phase.name}: {'' if phase.done_at is None else 'after '}{duration(seconds)}"


def came_back(status: RunStatus) -> list[str]:
    """One line on the groups before the first step, if there are any."""
    words = came_back_in_words(status.group_signals)
    return [words] if words else []


def coming(status: RunStatus, now_seconds: float) -> list[str]:
    """When the next step, the next evaluation and the end are due.

    Nothing is due while the next step is late.
    """
    pace = status.pace
    # A step that takes this much longer than those before it, and as long again as one of them, is
    # late.
    late_seconds = 10.0
    if pace is None:
        seconds_since_step = now_seconds - (status.stepped_at or now_seconds)
        return (
            []
            if seconds_since_step < late_seconds
            else [f"no step for {duration(seconds_since_step)}{_waiting(status)}"]
        )
    phrases = [f"{_step_seconds(pace.step_seconds)} a step"]
    overdue_seconds = now_seconds - pace.next_step_at
    if overdue_seconds >= max(late_seconds, pace.step_seconds) or (
        overdue_seconds >= LEAST_DUE_SECONDS and status.waits_for
    ):
        return [*phrases, f"next step late by {duration(overdue_seconds)}{_waiting(status)}"]
    phrases.append(_due("next step", pace.next_step_at, now_seconds))
    if pace.next_evaluation_at is not None:
        phrases.append(_due("next evaluation", pace.next_evaluation_at, now_seconds))
    if pace.end_at is not None:
        end_time = time.strftime(
            "%H:%M" if pace.end_at - now_seconds < DAY else "%d %b %H:%M",
            time.localtime(pace.end_at),
        )
        phrases.append(f"{_due('end', pace.end_at, now_seconds)} ({end_time})")
    return phrases


def _waiting(status: RunStatus) -> str:
    return f", waits for {status.waits_for}" if status.waits_for else ""


def _due(event_name: str, due_at: float, now_seconds: float) -> str:
    return (
        f"{event_name} in {duration(due_at - now_seconds)}"
        if due_at - now_seconds >= LEAST_DUE_SECONDS
        else f"{event_name} now"
    )


def _step_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def work(
    status: RunStatus, num_generators: int, max_staleness: int, *, is_running: bool
) -> list[str]:
    """Compute, generators, speed, staleness."""
    phrases = [f"{status.compute_device_hours:.4g} device-hours"]
    if is_running:
        phrases.append(f"generators {status.generators_ready} of {num_generators}")
    if status.tokens_per_second is not None:
        phrases.append(f"{status.tokens_per_second:,.0f} tokens/s")
    if num_tokens := sum(status.staleness.values()):
        mean = sum(age * tokens for age, tokens in status.staleness.items()) / num_tokens
        phrases.append(f"staleness {mean:.1f}, at most {max(status.staleness)} of {max_staleness}")
    return phrases


def reading_words(point: EvaluationRecord) -> str:
    """The pass rate of an evaluation, with its error and its reward."""
    error = "" if point.standard_error is None else f" ± {point.standard_error:.3f}"
    reward = "" if point.environment_reward is None else f" (reward {point.environment_reward:.3g})"
    return f"pass rate {point.pass_rate:.3f}{error}{reward}"


def evaluation_words(status: RunStatus) -> list[str]:
    """The newest evaluation, and the reward of the newest batch."""
    phrases = []
    if status.evaluations:
        newest = status.evaluations[-1]
        phrases.append(f"{reading_words(newest)} at step {newest.step:,}")
    else:
        phrases.append("no evaluation yet")
    if status.num_incomplete:
        phrases.append(f"{incomplete_points(status.num_incomplete)} left out")
    if status.reward_mean is not None:
        phrases.append(f"training reward {status.reward_mean:.3f}")
    return phrases


def find_forecast(status: RunStatus) -> ForecastReading | None:
    """The forecast, or None below five evaluations: the posterior is then mostly the prior, and is
    not shown.
    """
    return status.forecast if has_law(status) else None


def forecast_words(status: RunStatus) -> list[str]:
    """The verdict first. Below five evaluations nothing else is known."""
    num_evaluations = num_after_first_step(status.evaluations)
    if num_evaluations < LEAST_EVALUATIONS:
        return [
            f"too few: {num_evaluations} of the {LEAST_EVALUATIONS} evaluations that a "
            "forecast needs"
        ]
    forecast = find_forecast(status)
    if forecast is None:
        return ["the forecaster has not answered yet"]
    phrases = [forecast.verdict_in_words]
    if forecast.end is not None:
        phrases.append(f"end {interval(forecast.end)}")
    if forecast.asymptote is not None:
        phrases.append(f"ceiling {interval(forecast.asymptote)}")
    return phrases


def advice_words(status: RunStatus) -> str | None:
    law = find_forecast(status)
    return None if law is None or law.advice is None else law.advice.sentence()
