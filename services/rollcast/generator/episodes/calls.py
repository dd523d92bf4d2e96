"""The tool calls of one turn and their answers.

A mistake of the model is an answer that it can learn from.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rollcast.chat.base import ChatMessage, ToolCall
from rollcast.environments.base import (
    MAX_CALL_REWARD,
    EnvironmentFailedError,
    LiveEnvironment,
    ToolResult,
)
from rollcast.generator.episodes.waits import UnusableEpisodeError, Waits

GRACE_SECONDS = 10.0
"""Environments keep their own deadlines, and answer that a call took too long. One that says
nothing for this long after a deadline has failed."""
MAX_ANSWER_CHARACTERS = 65_536
"""Longest answer of a tool that is rendered, about 16,000 tokens: more than most budgets. Longer
ones are shortened."""


@dataclass(slots=True)
class CallAnswers:
    """The environment's answers to the calls of one turn."""

    messages: list[ChatMessage] = field(default_factory=list)
    num_malformed: int = 0
    num_cut: int = 0
    """Answers that were shortened."""
    num_overdue: int = 0
    """Calls that exceeded their deadline and were answered so."""
    rewards: list[float] = field(default_factory=list)
    """Rewards of single calls, in the order of the calls."""
    is_done: bool = False
    """Whether the environment ended the episode; the calls after that were not made."""


async def answer_calls(
    environment: LiveEnvironment,
    calls: Sequence[ToolCall],
    call_ids: Sequence[str],
    call_seconds: float,
    episode_deadline: float,
    waits: Waits,
    reward_width: float = 1.0,
) -> CallAnswers:
    """Make the calls in their order, because one may depend on what another changed.

    `episode_deadline`: in monotonic seconds; after it no further call is made. `reward_width`: of
    the environment's reward_range; rewards of calls are divided by it, as differences of the
    episode's reward are. Raises EnvironmentFailedError, UnusableEpisodeError, GivenUpError.
    """
    answers = CallAnswers()
    for call, call_id in zip(calls, call_ids, strict=True):
        if answers.messages and time.monotonic() >= episode_deadline:
            break
        result = await _answer(environment, call, call_seconds, waits)
        text = result.text
        if len(text) > MAX_ANSWER_CHARACTERS:
            text = shorten_answer(text)
        answers.num_cut += result.is_cut or len(result.text) > MAX_ANSWER_CHARACTERS
        answers.num_malformed += result.is_malformed
        answers.num_overdue += result.is_overdue
        if result.reward is not None:
            answers.rewards.append(_scaled_call_reward(result.reward, reward_width))
        answers.messages.append(
            {"role": "tool", "name": call.name, "tool_call_id": call_id, "content": text}
        )
        if result.is_done:
            answers.is_done = True
            break
    return answers


async def _answer(
    environment: LiveEnvironment, call: ToolCall, seconds: float, waits: Waits
) -> ToolResult:
    if call.problem:
        return ToolResult(call.problem, is_malformed=True)
    try:
        return await waits.ask(environment.call(call.name, call.arguments), seconds + GRACE_SECONDS)
    except TimeoutError:
        raise EnvironmentFailedError(
            f"did not end a call of {call.name} after {seconds:g} seconds", is_overdue=True
        ) from None


def _scaled_call_reward(reward: Any, reward_width: float) -> float:
    """The reward of a call, which a server gave. Raises UnusableEpisodeError."""
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise UnusableEpisodeError(
            f"gave a reward for a call that is not a number but {type(reward).__name__}"
        )
    if not abs(reward) <= MAX_CALL_REWARD * min(1.0, reward_width):  # NaN is refused too
        limit = MAX_CALL_REWARD * min(1.0, reward_width)
        raise UnusableEpisodeError(f"gave a reward for a call beyond {limit:g} of either sign")
    return float(reward) / reward_width


def shorten_answer(text: str) -> str:
    """Beginning and end of a long answer, with a sentence between them."""
    half = MAX_ANSWER_CHARACTERS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters are left out here]\n{text[-half:]}"
