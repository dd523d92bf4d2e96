"""Parts that all episodes of one generator share."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from rollcast.chat.base import ChatRenderer
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.environments.base import Environments
from rollcast.rollouts.environment_metrics import bound_metrics
from rollcast.rollouts.records import PromptTask, Rollout
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.metric import Metric

MAX_REASON_CHARACTERS = 500
"""An environment may fail with a text of any length; its beginning says enough."""
MAX_SET_UP_SLOT_SECONDS = 5.0
"""How long an episode that is set up occupies a slot, because it will soon sample. An environment
that takes longer must not keep the engine idle."""

Stage = Literal["start", "reset", "call", "reward", "metrics", "slot"]
"""The wait in which an episode failed: for its environment to be free, to be reset, to answer a
call, to give the reward, or its own numbers after that; or for a slot of the engine."""

log = get_logger()


@dataclass
class EpisodeParts:
    """Environments, the chat format, the engine's slots, and the counts."""

    environments: Environments
    renderer: ChatRenderer
    settings: Mapping[str, EnvironmentSettings]
    """By the environment's name."""
    slots: asyncio.Semaphore
    """Bounds the turns of episodes and the single answers in the engine, in the order in which they
    asked. A turn that waited inside the engine would lose its KV at every update of the weights."""
    max_sequence_tokens: int
    """Longest prompt and completion together, `model.max_length`."""
    exporter: Exporter
    _releases: set[asyncio.Task[None]] = field(default_factory=set)
    _failures: Counter[tuple[str, Stage]] = field(default_factory=Counter)
    _gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    _with_metrics_left_out: set[str] = field(default_factory=set)

    def run_in_background(self, ending: Coroutine[Any, Any, None]) -> None:
        """End something of an environment, or give it back.

        Does not wait: its processes may take long to end, and a hand-over must not.
        """
        task = asyncio.create_task(self._within_deadline(ending))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """End all environments."""
        for task in self._releases:
            task.cancel()
        await self.environments.close()

    async def _within_deadline(self, ending: Coroutine[Any, Any, None]) -> None:
        try:
            # Deadline for an environment to be taken back, in which its processes are ended
            async with asyncio.timeout(30.0):
                await ending
        except Exception as error:  # it is not used again; `close` ends its processes
            log.warning("an environment was not taken back", reason=repr(error))

    @contextmanager
    def counting(self, gauge: Metric, environment: str) -> Iterator[None]:
        """Raise a gauge while the context lasts."""
        self._change(gauge, environment, 1)
        try:
            yield
        finally:
            self._change(gauge, environment, -1)

    def _change(self, gauge: Metric, environment: str, amount: int) -> None:
        key = (gauge.name, environment)
        self._gauges[key] += amount
        self.exporter.set(gauge, self._gauges[key], environment=environment)

    def note_failure(self, environment: str, stage: Stage, reason: str) -> None:
        """Count a failure.

        Logged is an environment's first at a stage, then whenever their number has doubled.
        """
        self.exporter.add(episode_metrics.EPISODE_FAILURES, environment=environment, stage=stage)
        self._failures[environment, stage] += 1
        count = self._failures[environment, stage]
        if count & (count - 1):  # not a power of two
            return
        sentence = reason[:MAX_REASON_CHARACTERS]
        log.error(
            "an environment fails",
            environment=environment,
            stage=stage,
            reason=sentence,
            so_far=count,
        )

    def bound_metrics(self, environment: str, values: Mapping[Any, Any]) -> dict[str, float]:
        """The environment's own numbers that can be exported; the others are counted."""
        metrics = bound_metrics(values)
        if len(metrics) == len(values):
            return metrics
        num_left_out = len(values) - len(metrics)
        self.exporter.add(
            episode_metrics.EPISODE_METRICS_LEFT_OUT, num_left_out, environment=environment
        )
        if environment not in self._with_metrics_left_out:
            self._with_metrics_left_out.add(environment)
            names = [repr(name)[:80] for name in values if name not in metrics][:5]
            log.warning(
                "numbers of an environment are left out", environment=environment, names=names
            )
        return metrics

    def usable_start(
        self, task: PromptTask, start: Rollout | None, prompt: list[int]
    ) -> Rollout | None:
        """A former owner's part if it follows the same prompt; tokens of another are discarded."""
        if start is None or start.sequence_prompt(start, task.prompt_token_ids).tolist() == prompt:
            return start
        assert task.episode is not None
        self.note_discarded(task.episode.environment, start.num_tokens)
        return None

    def note_discarded(self, environment: str, num_tokens: int) -> None:
        """Count sampled tokens that are thrown away because their episode begins again."""
        if num_tokens:
            self.exporter.add(
                episode_metrics.EPISODE_TOKENS_DISCARDED, num_tokens, environment=environment
            )
