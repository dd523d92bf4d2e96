"""Processes of an environment whose class a test writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.settings import Profile
from rollcast.environments.hosted.processes import EnvironmentProcesses


@asynccontextmanager
async def environments(
    folder: Path, source: str, name: str, profile: Profile = "trusted", call_seconds: float = 20.0
) -> AsyncIterator[EnvironmentProcesses]:
    (folder / "world.py").write_text(source)
    settings = ClassEnvironment(
        name="mine", code=f"{folder}/world.py:{name}", profile=profile, call_seconds=call_seconds, reset_seconds=30.0
    )
    processes = EnvironmentProcesses(settings)
    try:
        yield processes
    finally:
        await processes.close()
