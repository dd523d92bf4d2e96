"""One episode from its claim to its verdict: attempts, one after another, until one ends.

    attempt -> answered | done | truncated: finished, with the environment's verdict or for a
       |                                    verifier to grade
       |----> EnvironmentFailedError: begins again; after `restarts` FAILED, without a verdict
       |----> `restart_if` (it has tokens of lost versions): begins again
       `----> `stop`: its task is handed to another owner

The state of an environment stays on its machine. So the next owner begins an unfinished episode
again, unless its first turn has not ended: then the environment has not been asked for anything,
and the turn continues at its last token. Tokens that are thrown away are counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rollcast.environments.base import EnvironmentFailedError
from rollcast.generator.base_sampler import Sampler
from rollcast.generator.episodes.attempt import EpisodeAttempt
from rollcast.generator.episodes.base_attempt import BaseAttempt
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.waits import GivenUpError
from rollcast.generator.grading import Graded
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import EpisodeEnd, PromptTask, Rollout
from rollcast.telemetry import episode_metrics, generator_metrics
from rollcast.wire.version import PolicyVersion

Begin = Callable[[Engine, PromptTask, int, EpisodeParts, Rollout | None], BaseAttempt]
"""Begins an attempt at a rollout of a task, with a former owner's part of its first turn."""


@dataclass(eq=False)
class EpisodeSampler(Sampler):
    """Samples one rollout of a task in an environment."""

    engine: Engine
    task: PromptTask
    index: int
    parts: EpisodeParts
    start: Rollout | None = None
    begin_attempt: Begin = EpisodeAttempt
    """Another function if a program outside takes the turns."""

    def __post_init__(self) -> None:
        super().__init__()
        assert self.task.episode is not None
        self._name = self.task.episode.environment
        start = self.start
        former = None if start is None else start.episode
        self._num_restarts = 0 if former is None else former.restarts
        is_finished = start is not None and not start.partial
        self._attempt = self._begin(None if is_finished else start)
        if start is not None and is_finished:
            self._attempt.record.restore(start)

    async def run(self) -> None:
        """Sample until the episode has ended or `stop` was called. Raises the engine's errors."""
        with self.parts.counting(episode_metrics.EPISODES_IN_FLIGHT, self._name):
            await super().run()

    @property
    def finished(self) -> bool:
        return self._attempt.record.episode.end is not EpisodeEnd.RUNNING and not self._restart

    @property
    def occupies_slot(self) -> bool:
        return not self.finished and self._attempt.occupies_slot

    @property
    def num_kv_tokens(self) -> int:
        """Tokens whose KV its next turn looks for in the prefix cache."""
        sequences = self._attempt.record.sequences
        return sequences[-1].num_tokens if sequences and not self.finished else 0

    @property
    def verdict(self) -> Graded | None:
        """The environment's, once it is finished; None = a verifier gives it."""
        return self._attempt.graded

    @property
    def answer_token_ids(self) -> list[int]:
        """The model's last turn, which a verifier grades."""
        return self._attempt.record.last_answer()

    def rollout(self) -> Rollout:
        """The record. Call it once, after `Engine.observe`, because it counts the preemptions."""
        attempt = self._attempt
        if not self.finished and not attempt.record.sequences and attempt.start is not None:
            # No turn began here: the former owner's part goes on to the next owner as it came.
            return attempt.start
        if self.finished or not attempt.has_ended_turn:
            self._count_kv()
            return attempt.record.rollout()
        self.parts.note_discarded(self._name, attempt.record.num_sampled_tokens)
        nothing = np.zeros(0, dtype=np.int32)
        return Rollout(self.index, nothing, nothing.astype(np.float32), partial=True)

    @property
    def _versions(self) -> set[PolicyVersion]:
        return self._attempt.versions

    async def _sample(self) -> None:
        try:
            await self._attempt.run()
        except GivenUpError:
            return
        except EnvironmentFailedError as error:
            self._fail(error)

    def _abort(self) -> None:
        self._attempt.give_up()

    def _begin(self, start: Rollout | None) -> BaseAttempt:
        return self.begin_attempt(self.engine, self.task, self.index, self.parts, start)

    def _begin_again(self) -> None:
        self.parts.note_discarded(self._name, self._attempt.record.num_sampled_tokens)
        self._count_kv()
        self._attempt = self._begin(None)
        self._attempt.record.episode.restarts = self._num_restarts
        self._restart = False

    def _fail(self, error: EnvironmentFailedError) -> None:
        """Begin again, or give up at the last restart.

        A failure that another episode made is not counted as one.
        """
        reason = str(error)
        if not error.is_of_another:
            if self._num_restarts >= self.parts.settings[self._name].restarts:
                self._attempt.fail(reason)
                return
            self._num_restarts += 1
        self.parts.note_failure(self._name, self._attempt.stage, reason)
        self._begin_again()

    def _count_kv(self) -> None:
        sequences = self._attempt.record.sequences
        num_tokens = {
            "kept": sum(sequence.num_kept_tokens for sequence in sequences),
            "rebuilt": sum(sequence.num_rebuilt_tokens for sequence in sequences),
            # The prompt of a further sequence is the episode so far.
            "split": sum(sequence.num_prefilled_tokens for sequence in sequences[1:]),
        }
        for state, number in num_tokens.items():
            self.parts.exporter.add(generator_metrics.EPISODE_KV_TOKENS, number, state=state)
