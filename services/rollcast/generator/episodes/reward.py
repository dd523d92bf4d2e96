"""The reward of an episode, given by its environment. Anything except a number in [0, 1] is no verdict, never a 0."""

import math
from typing import Any

from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.generator.episodes.calls import GRACE_SECONDS
from rollcast.generator.episodes.waits import UnusableEpisodeError, Waits
from rollcast.generator.grading import Graded
from rollcast.rollouts.records import GradingStatus


async def request_reward(environment: LiveEnvironment, call_seconds: float, waits: Waits) -> Graded:
    """The environment's verdict. Raises UnusableEpisodeError, EnvironmentFailedError, GivenUpError."""
    seconds_before = waits.environment_seconds
    try:
        reward = await waits.ask(environment.reward(), call_seconds + GRACE_SECONDS)
    except TimeoutError:
        raise EnvironmentFailedError(f"gave no reward within {call_seconds:g} seconds") from None
    value = validate_reward(reward)
    status = GradingStatus.OK if value > 0 else GradingStatus.WRONG
    return Graded(value, status, waits.environment_seconds - seconds_before)


def validate_reward(reward: Any) -> float:
    """The reward as a number in [0, 1]. Raises UnusableEpisodeError."""
    if reward is None:
        raise UnusableEpisodeError("gave no reward")
    try:
        value = float(reward)
    except (TypeError, ValueError):
        raise UnusableEpisodeError(f"gave a reward that is not a number but {type(reward).__name__}") from None
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise UnusableEpisodeError(f"gave a reward of {value:g}, which is not in [0, 1]")
    return value
