"""Calls that nothing is trained on: a look at the policy by `curl`, or an agent's title, summary or
judge.

session (any thread) -> turn: waits for its place -> sampled as in any session
                          |                              -> its record is thrown away
                          `- too many, no weights, no engine: refused
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import numpy as np

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.recipe import Recipe
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import EpisodeTask, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.telemetry import episode_metrics

SLOTS_FOR_EACH = 8
"""Slots of the engine for each call: such calls take an eighth of all at most, but always one."""
ENVIRONMENT = "(no session)"
"""The name of their environment in metrics. No environment of a run file can have this name."""


class SingleSession(HarnessSession):
    """A session of no task, for one request; `asking_session` is the session of an episode whose
    program asks.

    A request of an episode waits for a place, and for the one before it of the same episode;
    another one is refused if no place is free.
    """

    def __init__(
        self,
        calls: "SingleCalls",
        task: PromptTask,
        parts: EpisodeParts,
        record: EpisodeRecord,
        asking_session: HarnessSession | None,
    ) -> None:
        super().__init__(task, HarnessEnvironment(name="none"), parts, record)
        self._calls = calls
        self._asking_session = asking_session
        self._releases = ExitStack()
        """Releases of the lock and the place."""

    @asynccontextmanager
    async def turn(
        self, request: object, end: Callable[[], object], max_tokens: int | None
    ) -> AsyncIterator[int]:
        """Raises RefusedRequestError if there are too many, nothing can be sampled now, or the
        episode is over.
        """
        self._calls.admit(self)
        with ExitStack() as closing:
            closing.callback(self._calls.dismiss, self)
            if self._asking_session is not None:
                closing.enter_context(self._asking_session.untrained_request(self, self.close))
                # From here on its deadline is the episode's, which waits for slots move.
                self.clock = self._asking_session.clock
            closing.enter_context(self._releases)
            async with super().turn(request, end, max_tokens) as tokens:
                yield tokens

    async def reserve(self, request: object, max_tokens: int | None) -> int:
        """Take a place, and the tokens. Raises RefusedRequestError."""
        if self._asking_session is not None:
            await self._asking_session.untrained_lock.acquire()
            self._releases.callback(self._asking_session.untrained_lock.release)
        await self._calls.acquire_slot(may_wait=self._asking_session is not None)
        self._releases.callback(self._calls.slots.release)
        return await super().reserve(request, max_tokens)


class SingleCalls:
    """Makes their sessions, and bounds how many are under way.

    All except `session` runs on the engine's loop.
    """

    def __init__(
        self,
        engine: Engine,
        parts: EpisodeParts,
        sessions: Sessions,
        recipe: Recipe,
        num_slots: int,
    ) -> None:
        self._engine = engine
        self._parts = parts
        self._sessions = sessions
        # Calls that sample at the same time
        self._max_calls = max(1, min(8, num_slots // SLOTS_FOR_EACH))
        self.slots = asyncio.Semaphore(self._max_calls)
        limits = EpisodeTask(
            ENVIRONMENT, "[]", max_turns=1, max_seconds=recipe.episodes.max_seconds
        )
        self._task = PromptTask(
            # No task has it, so that no rollout shares their KV
            sequence=-1,
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
            episode=limits,
        )

    def session(self, asking_session: HarnessSession | None = None) -> HarnessSession:
        """A session for one request; `asking_session`: that of the program which asks."""
        record = EpisodeRecord(self._engine, self._task, 0, self._parts.max_sequence_tokens)
        if isinstance(asking_session, SingleSession):
            asking_session = None
        return SingleSession(self, self._task, self._parts, record, asking_session)

    def admit(self, session: HarnessSession) -> None:
        """Begin the session's request. Raises RefusedRequestError."""
        if self._engine.failed or self._engine.version is None:
            raise RefusedRequestError(
                "the generator has no weights now; retry later", 503, "no_weights"
            )
        session.clock.start()
        self._sessions.add(session)

    async def acquire_slot(self, *, may_wait: bool) -> None:
        """Wait for one of the slots of such calls. Raises RefusedRequestError if none is free and
        the caller may not wait.

        The caller bounds the wait by its session's deadline.
        """
        if not may_wait and self.slots.locked():
            reason = f"{self._max_calls} calls without a session are under way here; retry later"
            raise RefusedRequestError(reason, 503, "enough_calls")
        await self.slots.acquire()

    def dismiss(self, session: HarnessSession) -> None:
        """Remove a session whose request is answered."""
        self._sessions.remove(session)
        self._parts.exporter.add(
            episode_metrics.ENDPOINT_SINGLE_TOKENS, session.record.num_sampled_tokens
        )


def serve_single_calls(
    sessions: Sessions, engine: Engine, parts: EpisodeParts, recipe: Recipe, num_slots: int
) -> None:
    """Let the endpoint of these sessions answer such calls from now on."""
    sessions.make_single = SingleCalls(engine, parts, sessions, recipe, num_slots).session
