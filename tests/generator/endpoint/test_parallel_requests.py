"""Requests that state no max_tokens: each its share of the budget side by side, or one after the
other.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LengthBudget
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, served_endpoint
from testkit.generator.played_sessions import check_exact, play_session
from tests.generator.conftest import Versions

BUDGET_TOKENS = 160


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("parallel", "asked"), [(1, None), (4, None), (4, 32_000), (1, 32_000)])
async def test_sub_agents_sample_side_by_side(
    versions: Versions, parallel: int, asked: int | None
) -> None:
    """Four sub-agents, as clients start them: without max_tokens, or always with more than there
    is.
    """
    most_running = 0
    lengths: list[int] = []

    async def program(client: Any, session: HarnessSession) -> None:
        nonlocal most_running
        options = {} if asked is None else {"max_tokens": asked}

        async def ask(number: int) -> None:
            messages = [{"role": "user", "content": f"sub agent {number}"}]
            completion = await client.chat.completions.create(
                model=MODEL, messages=messages, **options
            )
            lengths.append(completion.usage.completion_tokens)

        running = [asyncio.create_task(ask(number)) for number in range(4)]
        while not all(task.done() for task in running):
            most_running = max(most_running, session.num_running)
            await asyncio.sleep(0.001)
        ended = await asyncio.gather(*running, return_exceptions=True)
        if parallel > 1:
            assert not [error for error in ended if error is not None]

    settings = {"reset_seconds": 60, "call_seconds": 60, "parallel_requests": parallel}
    async with served_endpoint(versions.engine, settings) as served:
        task = episode_task(80, 1, LengthBudget(max_tokens=BUDGET_TOKENS))
        _, rollout = await play_session(served, task, program)
    check_exact(versions, rollout, task)
    assert sum(lengths) <= BUDGET_TOKENS
    if parallel == 1:
        assert most_running == 1
    else:
        assert most_running > 1
        assert max(lengths) <= BUDGET_TOKENS // parallel
