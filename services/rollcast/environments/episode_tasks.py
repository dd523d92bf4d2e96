"""The part of a task that an environment plays."""

import json

from rollcast.config.episodes import Episodes
from rollcast.rollouts.records import EpisodeTask
from rollcast.tasks.prompt import Prompt


def make_episode_task(prompt: Prompt, system: str | None, budgets: Episodes) -> EpisodeTask:
    """An episode on this prompt. system: begins a chat that lacks a system message; None = none is
    added.
    """
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    if system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return EpisodeTask(
        environment=prompt.environment,
        messages=json.dumps(messages),
        max_turns=budgets.max_turns,
        max_seconds=budgets.max_seconds,
        answer=prompt.answer,
    )
