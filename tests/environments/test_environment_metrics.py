"""A class may give numbers of an episode besides its reward: `get_metrics`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollcast.environments.base import EnvironmentFailedError
from testkit.class_environments import environments

WALK = '''
class Walk:
    def reset(self, fails=False, **row):
        self.fails = fails
        self.steps = 0

    def walk(self, steps: int) -> str:
        """Walk.

        Args:
            steps: How many.
        """
        self.steps += steps
        return "there"

    def get_reward(self):
        return 1

    async def get_metrics(self):
        if self.fails:
            raise RuntimeError("nobody counted")
        if self.steps > 9:
            return None
        return {"steps": self.steps, "has_arrived": True, "name": "hall", "odd": Odd(), 3: 1}


class Odd:
    def __float__(self):
        raise RuntimeError("no number")
'''
PLAIN = WALK.replace("get_metrics", "_own")


async def test_a_class_gives_numbers_of_its_episode(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(120),
        environments(tmp_path, WALK, "Walk", call_seconds=20.0) as processes,
    ):
        one = await processes.acquire()
        opening = await one.reset({})
        assert [tool["function"]["name"] for tool in opening.tools] == ["walk"], (
            "get_metrics is no tool"
        )
        await one.call("walk", {"steps": 3})
        assert await one.metrics() == {
            "steps": 3.0,
            "has_arrived": 1.0,
            "name": None,
            "odd": None,
            "3": 1.0,
        }
        await one.call("walk", {"steps": 30})
        with pytest.raises(EnvironmentFailedError, match="get_metrics returned NoneType"):
            await one.metrics()
        one = await processes.acquire()
        await one.reset({"fails": True})
        with pytest.raises(EnvironmentFailedError, match="nobody counted"):
            await one.metrics()


async def test_a_class_without_numbers_is_not_asked(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(120),
        environments(tmp_path, PLAIN, "Walk", call_seconds=20.0) as processes,
    ):
        one = await processes.acquire()
        await one.reset({})
        asked = one._num_requests
        assert await one.metrics() == {}
        assert one._num_requests == asked
