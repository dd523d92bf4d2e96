"""The endpoint of a generator, served in the test's process, with tasks that a test samples through
it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from rollcast.config.connections import TLS, Http
from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.config.recipe import Recipe
from rollcast.connections.http import HttpServer, listen
from rollcast.generator.base_sampler import Sampler
from rollcast.generator.endpoint.make import serve
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.endpoint.single_calls import SLOTS_FOR_EACH, serve_single_calls
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.samplers import Samplers
from rollcast.rollouts.records import PromptTask, Rollout
from testkit.generator.episode_tasks import WORLD, episode_parts
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds

MODEL = "tiny"
MAX_SINGLE_TOKENS = 40
"""Most tokens that are sampled for one call without a session."""
MOST_SINGLE_CALLS = 2
"""Calls without a session that are answered at the same time."""


@dataclasses.dataclass
class ServedEndpoint:
    """An endpoint that listens, and what its episodes share."""

    engine: Any
    parts: EpisodeParts
    sessions: Sessions
    server: HttpServer

    def sampler(self, task: PromptTask, index: int = 0, start: Rollout | None = None) -> Sampler:
        return Samplers(self.engine, self.parts, self.sessions).sampler(task, index, start)

    def count(self, metric: Any, **labels: str) -> float:
        """The sum of a metric over the labels that are not given."""
        return sum(
            sample.value
            for family in self.parts.exporter.registry.collect()
            for sample in family.samples
            if sample.name == metric.name and labels.items() <= sample.labels.items()
        )


@asynccontextmanager
async def served_endpoint(
    engine: Any,
    settings: dict[str, Any],
    calls: Callable[[Sequence[int]], int] = lambda tokens: 1,
    run_token: str | None = None,
    tls: TLS | None = None,
    **options: Any,
) -> AsyncIterator[ServedEndpoint]:
    """`settings`: of the environment; `calls` and `options`: of `episode_parts`."""
    import vllm.entrypoints.openai.chat_completion.protocol  # noqa: F401  # as the engine of a generator has by then

    worlds = ScriptedWorlds(lambda: ScriptedWorld(answer=lambda number: None))  # type: ignore[arg-type, return-value]
    parts = episode_parts(worlds, calls, **options)
    kind: type[SessionEnvironment] = (
        VerifiersEnvironment if "taskset" in settings else HarnessEnvironment
    )
    if "factory" in settings:
        kind = OpenEnvSessionEnvironment
    parts.settings = {WORLD: kind.model_validate({"name": WORLD, **settings})}
    http = Http(tls=tls, token=SecretStr(run_token) if run_token else None)
    sessions = Sessions(MODEL, http)
    recipe = Recipe.model_validate(
        {"max_completion_tokens": MAX_SINGLE_TOKENS, "length_control": {"kind": "none"}}
    )
    serve_single_calls(sessions, engine, parts, recipe, SLOTS_FOR_EACH * MOST_SINGLE_CALLS)
    listener = listen(http.bind, 0, setting="generator.http_port")
    server = await asyncio.to_thread(serve, http, listener, parts.exporter, sessions)
    try:
        yield ServedEndpoint(engine, parts, sessions, server)
    finally:
        await sessions.close()
        await parts.close()
        await asyncio.to_thread(server.stop)


async def claim_next_session(endpoint: ServedEndpoint) -> HarnessSession:
    """The next session that an outside program would get."""
    session = await endpoint.sessions.next_task(60.0)
    assert session is not None
    return session


def make_client(endpoint: ServedEndpoint, session: HarnessSession, **options: Any) -> Any:
    """An `openai.AsyncOpenAI` of a session; `options`: others than those of a program that is given
    its task.
    """
    import openai

    described = endpoint.sessions.describe_session(session, endpoint.sessions.url)
    default_options = {
        "base_url": described["base_url"],
        "api_key": described["token"],
        "max_retries": 0,
        "timeout": 60.0,
    }
    return openai.AsyncOpenAI(**{**default_options, **options})
