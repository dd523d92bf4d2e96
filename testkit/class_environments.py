"""Processes of an environment whose class a test writes, and waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.settings import Profile
from rollcast.environments.python_processes.processes import EnvironmentProcesses


async def eventually(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@asynccontextmanager
async def environments(
    folder: Path, source: str, name: str, profile: Profile = "trusted", call_seconds: float = 20.0
) -> AsyncIterator[EnvironmentProcesses]:
    (folder / "world.py").write_text(source)
    settings = ClassEnvironment(
        name="mine",
        code=f"{folder}/world.py:{name}",
        profile=profile,
        call_seconds=call_seconds,
        reset_seconds=30.0,
    )
    processes = EnvironmentProcesses(settings)
    try:
        yield processes
    finally:
        await processes.close()
