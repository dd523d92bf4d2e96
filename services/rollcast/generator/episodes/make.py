"""The parts of episodes that a run file asks for."""

import asyncio
from typing import cast

from rollcast.chat.make import make_renderer
from rollcast.chat.template import ChatTokenizer
from rollcast.config.model import Model
from rollcast.config.tasks import Tasks
from rollcast.environments.of_run import EnvironmentsOfRun
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.tasks.tokens import load_tokenizer
from rollcast.telemetry.exporter import Exporter


def episode_parts(
    model: Model, tasks: Tasks, *, num_slots: int, kv_tokens: int, exporter: Exporter
) -> EpisodeParts | None:
    """None = the run file has no environments.

    kv_tokens: tokens whose KV fits into the engine's cache. Raises UserError if the model has no format for turns.
    """
    if not tasks.environments:
        return None
    tokenizer = cast(ChatTokenizer, load_tokenizer(model))
    return EpisodeParts(
        environments=EnvironmentsOfRun(tasks.environments),
        renderer=make_renderer(model, tokenizer, tasks.prompt_format),
        settings={one.name: one for one in tasks.environments},
        slots=asyncio.Semaphore(num_slots),
        max_sequence_tokens=model.max_length,
        kv_tokens=kv_tokens,
        exporter=exporter,
    )
