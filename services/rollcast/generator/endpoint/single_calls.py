"""Calls without a session: a look at the policy as it is now, by `curl` or any client with the run's token.

open -> one request, sampled as a session's is -> closed; its record is thrown away, and nothing of it is trained
"""

import time
from collections.abc import Callable

import numpy as np

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.recipe import Recipe
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession, SessionTask
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import EpisodeTask, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.telemetry import names

MOST_AT_ONCE = 8
"""Calls that wait or sample at the same time. They take slots of the engine from rollouts."""
ENVIRONMENT = "without-session"
"""What metrics call their environment."""
SEQUENCE = -1
"""No task has it, so that no rollout shares their KV."""


class SingleSession(HarnessSession):
    """A session of no task, for one request."""

    def __init__(
        self,
        task: SessionTask,
        settings: SessionEnvironment,
        parts: EpisodeParts,
        record: EpisodeRecord,
        on_end: Callable[[HarnessSession], None],
    ) -> None:
        super().__init__(task, settings, parts, record)
        self._on_end = on_end

    def leave(self, request: object) -> None:
        """The request is answered."""
        super().leave(request)
        self._on_end(self)


class SingleCalls:
    """Opens their sessions, from any thread."""

    def __init__(self, engine: Engine, parts: EpisodeParts, sessions: Sessions, recipe: Recipe) -> None:
        self._engine = engine
        self._parts = parts
        self._sessions = sessions
        self._settings = HarnessEnvironment(name=ENVIRONMENT)
        self._task = PromptTask(
            sequence=SEQUENCE,
            incarnation=0,
            purpose=Purpose.EVAL,
            dataset="",
            prompt_id="",
            prompt_token_ids=np.zeros(0, dtype=np.int32),
            num_rollouts=1,
            sampling=Sampling(temperature=recipe.temperature),
            length=LengthBudget(max_tokens=recipe.max_completion_tokens),
            verifier="",
            reference="{}",
            episode=EpisodeTask(ENVIRONMENT, "[]", max_turns=1, max_seconds=recipe.episodes.max_seconds),
        )
        self._open: set[HarnessSession] = set()

    def open(self) -> HarnessSession:
        """A session for one request. Raises RefusedRequestError if there are no weights yet, or too many such calls."""
        if self._engine.version is None:
            raise RefusedRequestError("the generator has no weights yet; ask again later", 503, "no_weights")
        if len(self._open) >= MOST_AT_ONCE:
            why = f"{MOST_AT_ONCE} calls without a session are under way here; ask again later"
            raise RefusedRequestError(why, 503, "enough_calls")
        limits = self._task.episode
        assert limits is not None
        session = SingleSession(
            SessionTask(
                environment=ENVIRONMENT,
                limits=limits,
                sampling=self._task.sampling,
                max_tokens=self._task.length.max_tokens,
                row=self._task.reference,
                rewards=False,
            ),
            self._settings,
            self._parts,
            EpisodeRecord(self._engine, self._task, 0, self._parts.max_sequence_tokens),
            self.close,
        )
        session.deadline = time.monotonic() + limits.max_seconds
        self._open.add(session)
        self._sessions.add(session)
        return session

    def close(self, session: HarnessSession) -> None:
        """Its request is answered, or was none."""
        self._open.discard(session)
        self._sessions.remove(session)
        self._parts.exporter.add(names.ENDPOINT_SINGLE_TOKENS, session.record.num_sampled_tokens)
