"""What episodes are played with when the engine has no model: turns of four tokens,
one call each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rollcast.environments.base import ToolResult
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.rollouts.records import LengthBudget
from testkit.generator.scripted_engine import ScriptedEngine

TURN_TOKENS = 4
BUDGET = LengthBudget(max_tokens=300)


def four_tokens(request: EngineRequest) -> int:
    return len(request.token_ids) + TURN_TOKENS


def one_call(tokens: Sequence[int]) -> int:
    return 1


def done_after(calls: int) -> Any:
    """An answer that ends the episode at this call."""
    return lambda number: ToolResult(f"look {number}", is_done=number >= calls)


@asynccontextmanager
async def stepping(engine: ScriptedEngine) -> AsyncIterator[None]:
    """The engine samples all the time."""

    async def step() -> None:
        while True:
            await engine.advance(1)

    running = asyncio.create_task(step())
    try:
        yield
    finally:
        running.cancel()
