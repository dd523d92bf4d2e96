"""The base of attempts at an episode: those whose turns the generator takes, and those whose turns
a program outside takes.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from rollcast.generator.episodes.parts import MAX_REASON_CHARACTERS, EpisodeParts, Stage
from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.episodes.waits import Waits
from rollcast.generator.grading import Graded
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, PromptTask, Rollout
from rollcast.wire.version import PolicyVersion


@dataclass(eq=False)
class BaseAttempt(ABC):
    """One attempt at an episode. `run` it once. `give_up` makes it raise GivenUpError soon."""

    engine: Engine
    task: PromptTask
    index: int
    parts: EpisodeParts
    first_start: Rollout | None = None
    """A former owner's part of the first turn, used if the episode begins with the same prompt."""

    def __post_init__(self) -> None:
        assert self.task.episode is not None
        self._limits = self.task.episode
        self._name = self._limits.environment
        self._settings = self.parts.settings[self._name]
        self._waits = Waits()
        self._created_at = time.monotonic()
        max_sequence_tokens = self.parts.max_sequence_tokens
        self.record = EpisodeRecord(self.engine, self.task, self.index, max_sequence_tokens)
        self.stage: Stage = "start"
        """The present wait, or the last one."""
        self.graded: Graded | None = None
        """A verdict that was given with it; None = a verifier gives it."""

    @property
    def start(self) -> Rollout | None:
        """A former owner's part of the first turn. None = no owner began the episode, or that part
        was discarded.
        """
        return self.first_start

    @property
    @abstractmethod
    def has_ended_turn(self) -> bool:
        """Whether the environment's state may have changed, so that no other owner can go on with
        it.
        """

    @property
    @abstractmethod
    def occupies_slot(self) -> bool:
        """Whether it samples, waits for a slot of the engine, or soon will."""

    @property
    def versions(self) -> set[PolicyVersion]:
        """Versions that have or may have sampled a token, a former owner's included."""
        if self.start is not None and not self.record.sequences:
            return set(self.start.versions)
        return self.record.versions

    @abstractmethod
    async def run(self) -> None:
        """Set `record.episode.end` and `graded`.

        Raises EnvironmentFailedError, GivenUpError, and the engine's errors.
        """

    @abstractmethod
    def give_up(self) -> None:
        """Nothing more is sampled or asked for."""

    def fail(self, reason: str) -> None:
        """End without a verdict."""
        sentence = " ".join(f"environment {self._name}: {reason}".split())[:MAX_REASON_CHARACTERS]
        self.record.episode.end = EpisodeEnd.FAILED
        self.record.episode.reason = sentence
        self.graded = Graded(0.0, GradingStatus.ERROR, 0.0, failure=sentence)
        self.parts.note_failure(self._name, self.stage, sentence)
