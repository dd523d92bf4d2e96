"""The reward of an episode, given by its environment.

Only a number in its range is a verdict; another is never a 0.
"""

from typing import Any

from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.generator.episodes.calls import GRACE_SECONDS
from rollcast.generator.episodes.waits import UnusableEpisodeError, Waits
from rollcast.generator.grading import Graded
from rollcast.rollouts.records import GradingStatus


async def request_reward(
    environment: LiveEnvironment,
    call_seconds: float,
    reward_range: tuple[float, float],
    waits: Waits,
) -> Graded:
    """The environment's verdict.

    Raises UnusableEpisodeError, EnvironmentFailedError, GivenUpError.
    """
    seconds_before = waits.environment_seconds
    try:
        reward = await waits.ask(environment.reward(), call_seconds + GRACE_SECONDS)
    except TimeoutError:
        raise EnvironmentFailedError(f"gave no reward within {call_seconds:g} seconds") from None
    return graded_reward(reward, reward_range, waits.environment_seconds - seconds_before)


def graded_reward(reward: Any, reward_range: tuple[float, float], seconds: float) -> Graded:
    """The verdict of a reward, which took `seconds`. Raises UnusableEpisodeError."""
    value = scaled_reward(reward, reward_range)
    return Graded(value, GradingStatus.OK if value > 0 else GradingStatus.WRONG, seconds)


def scaled_reward(reward: Any, reward_range: tuple[float, float]) -> float:
    """The reward as a number in [0, 1]: lowest and highest of its range are 0 and 1.

    Raises UnusableEpisodeError.
    """
    if reward is None:
        raise UnusableEpisodeError("gave no reward")
    try:
        value = float(reward)
    except (TypeError, ValueError, OverflowError):
        raise UnusableEpisodeError(
            f"gave a reward that is not a number but {type(reward).__name__}"
        ) from None
    low, high = reward_range
    if not low <= value <= high:  # NaN is in no range
        raise UnusableEpisodeError(
            f"gave a reward of {value:g}, which is not in its reward_range [{low:g}, {high:g}]"
        )
    return (value - low) / (high - low)
