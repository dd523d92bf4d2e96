"""A run with one environment of OpenEnv."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollcast.config.environments.openenv import OpenEnvEnvironment
from rollcast.environments.of_run import EnvironmentsOfRun

CLOSED_PORT = "http://127.0.0.1:9"


@asynccontextmanager
async def environments(
    url: str, interpreter: Path, *, reset_seconds: float = 60.0, call_seconds: float = 30.0
) -> AsyncIterator[EnvironmentsOfRun]:
    settings = OpenEnvEnvironment(
        name="echo",
        url=url,
        interpreter=interpreter,
        reset_seconds=reset_seconds,
        call_seconds=call_seconds,
    )
    made = EnvironmentsOfRun([settings])
    try:
        yield made
    finally:
        await made.close()
