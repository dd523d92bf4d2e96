"""A run with one environment of verifiers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.verifiers.helper import VerifiersHelper

DESCRIBED = {"model": "tiny", "base_url": "http://127.0.0.1:9/v1", "token": "secret"}
ROW = json.dumps({"task": {"prompt": "what is in the room?"}})


def settings(
    interpreter: Path | str, taskset: str = "agents", **others: Any
) -> VerifiersEnvironment:
    given = {"name": "world", "taskset": taskset, "interpreter": interpreter, **others}
    return VerifiersEnvironment.model_validate(given)


async def why_it_does_not_start(interpreter: Path | str, **others: Any) -> str:
    helper = VerifiersHelper(settings(interpreter, **others), {})
    try:
        with pytest.raises(EnvironmentFailedError) as failed:
            await helper.start(ROW, DESCRIBED, {})
    finally:
        await helper.close()
    return str(failed.value)


def run_file(folder: Path, interpreter: Path | str, **others: Any) -> str:
    environment = {
        "kind": "verifiers",
        "name": "world",
        "taskset": "agents",
        "interpreter": str(interpreter),
        **others,
    }
    file = folder / "run.yaml"
    file.write_text(
        json.dumps(
            {"run": "rooms", "model": {"path": "tiny"}, "tasks": {"environments": [environment]}}
        )
    )
    return str(file)
