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
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

FORK_SERVER = "fork_server"
"""The stage of a failure: the fork server of an environment did not answer, and was ended."""

log = get_logger()


def episode_parts(
    model: Model, tasks: Tasks, num_slots: int, exporter: Exporter
) -> EpisodeParts | None:
    """None = the run file has no environments.

    Raises UserError if the model has no format for turns.
    """
    if not tasks.environments:
        return None
    tokenizer = cast(ChatTokenizer, load_tokenizer(model))

    def note_replaced(name: str) -> None:
        exporter.add(episode_metrics.EPISODE_FAILURES, environment=name, stage=FORK_SERVER)
        log.warning("a fork server did not answer and was ended", environment=name)

    return EpisodeParts(
        environments=EnvironmentsOfRun(tasks.environments, note_replaced),
        renderer=make_renderer(model, tokenizer, tasks.prompt_format),
        settings={environment.name: environment for environment in tasks.environments},
        slots=asyncio.Semaphore(num_slots),
        max_sequence_tokens=model.max_length,
        exporter=exporter,
    )
