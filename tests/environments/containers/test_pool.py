"""Containers of a pool that no episode gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.pool import ContainerPool


class SlowContainer:
    """Does not answer whether it has ended."""

    is_ended = False

    async def has_ended(self) -> bool:
        await asyncio.sleep(1_000)
        return False

    async def end(self) -> None:
        self.is_ended = True


class SlowEngine:
    def __init__(self) -> None:
        self.container = SlowContainer()

    async def start(self, *_: Any) -> Any:
        return self.container


async def test_an_episode_that_is_given_up_before_it_gets_its_container_ends_it() -> None:
    engine: Any = SlowEngine()
    settings = ContainerSettings(image="localhost/image:1")
    acquiring = asyncio.create_task(ContainerPool(engine, settings, 10.0).acquire())
    await asyncio.sleep(0.1)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await asyncio.sleep(0.1)
    assert engine.container.is_ended
