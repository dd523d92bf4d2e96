"""A class may say what each call was worth: `get_call_reward`, which TRL's convention does not
have.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollcast.environments.base import EnvironmentFailedError, ToolResult
from testkit.class_environments import environments

STEPS = '''
class Steps:
    def reset(self, **row):
        self.earned = 0.0

    def walk(self, steps: int) -> str:
        """Walk.

        Args:
            steps: How many.
        """
        self.earned = -0.5
        if steps > 9:
            raise ValueError("too far")
        self.earned = steps / 10
        return "there"

    async def get_call_reward(self):
        if self.earned == 0:
            raise RuntimeError("nobody walked")
        return self.earned

    def get_reward(self):
        return 1
'''


async def test_a_class_may_reward_its_calls(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(120),
        environments(tmp_path, STEPS, "Steps", call_seconds=20.0) as processes,
    ):
        one = await processes.acquire()
        opening = await one.reset({})
        assert [tool["function"]["name"] for tool in opening.tools] == ["walk"]
        assert await one.call("walk", {"steps": 3}) == ToolResult("there", reward=0.3)
        assert await one.call("walk", {"steps": 10}) == ToolResult("Error: too far", reward=-0.5)
        assert (await one.call("walk", {})).reward is None, "no call was made"
        assert await one.reward() == 1.0
        with pytest.raises(EnvironmentFailedError, match="nobody walked"):
            await one.call("walk", {"steps": 0})
