"""Samplers of one rollout: a single answer, or an episode in the environment
that its task names.
"""

from functools import partial

from rollcast.config.environments.settings import SessionEnvironment
from rollcast.generator.base_sampler import Sampler
from rollcast.generator.endpoint.attempt import HarnessAttempt
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.generator.sampling import RolloutSampler
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import PromptTask, Rollout


class Samplers:
    """Makes the samplers of one generator."""

    def __init__(
        self, engine: Engine, episodes: EpisodeParts | None = None, sessions: Sessions | None = None
    ) -> None:
        """`episodes`: None = the run has no environments.

        `sessions`: None = none of them is a harness.
        """
        self._engine = engine
        self._sessions = sessions
        self._episodes = episodes

    def refusal(self, task: PromptTask) -> str:
        """Why this generator cannot sample the task: the run file was changed since its dispatch.

        Empty = it can.
        """
        if task.episode is None:
            return ""
        name = task.episode.environment
        if self._episodes is not None and name in self._episodes.settings:
            return ""
        return (
            f"tasks.environments: none is called {name!r}, in which a prompt is to be answered; "
            "add it"
        )

    def sampler(self, task: PromptTask, index: int, start: Rollout | None) -> Sampler:
        """A sampler of a task without `refusal`. `start`: what a former owner has sampled."""
        if task.episode is None:
            return RolloutSampler(
                self._engine, task, index, start, self._episodes.slots if self._episodes else None
            )
        assert self._episodes is not None
        settings = self._episodes.settings[task.episode.environment]
        if not isinstance(settings, SessionEnvironment):
            return EpisodeSampler(self._engine, task, index, self._episodes, start)
        assert self._sessions is not None
        begin = partial(HarnessAttempt, sessions=self._sessions)
        return EpisodeSampler(self._engine, task, index, self._episodes, start, begin)
