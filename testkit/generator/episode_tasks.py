"""Tasks and parts of episodes in a scripted world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import numpy as np

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.environments.base import Environments
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.rollouts.records import EpisodeTask, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.telemetry.exporter import Exporter
from testkit.generator.scripted_world import AnyTokensRenderer, characters

WORLD = "world"
MESSAGES = json.dumps([{"role": "user", "content": "what is in the room?"}])
MAX_LENGTH = 512


def episode_task(
    sequence: int,
    num_rollouts: int,
    length: LengthBudget,
    *,
    max_turns: int = 8,
    max_seconds: float = 60.0,
    purpose: Purpose = Purpose.TRAIN,
) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=purpose,
        dataset="test",
        prompt_id=str(sequence),
        prompt_token_ids=np.asarray(characters("user: what is in the room?\n"), dtype=np.int32),
        num_rollouts=num_rollouts,
        sampling=Sampling(),
        length=length,
        verifier="",
        reference=json.dumps({"room": sequence}),
        episode=EpisodeTask(WORLD, MESSAGES, max_turns=max_turns, max_seconds=max_seconds),
    )


def episode_parts(
    environments: Environments,
    calls: Callable[[Sequence[int]], int],
    *,
    splits: Callable[[Sequence[int]], bool] = lambda tokens: False,
    stop_token_ids: tuple[int, ...] = (),
    slots: int = 8,
    restarts: int = 2,
    call_seconds: float = 60.0,
    exporter: Exporter | None = None,
) -> EpisodeParts:
    """`calls` and `splits`: see AnyTokensRenderer."""
    settings = ClassEnvironment(
        name=WORLD, code="./world.py:World", restarts=restarts, call_seconds=call_seconds
    )
    return EpisodeParts(
        environments=environments,
        renderer=AnyTokensRenderer(calls, splits, stop_token_ids),
        settings={WORLD: settings},
        slots=asyncio.Semaphore(slots),
        max_sequence_tokens=MAX_LENGTH,
        exporter=exporter or Exporter("test"),
    )
