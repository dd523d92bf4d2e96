"""The process in which harness sessions of OpenEnv begin.

Their episodes are in tests/generator/endpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.openenv_sessions.adapter import call_digest, ranges
from rollcast.environments.openenv_sessions.helper import OpenEnvHelper, OpenEnvRollout
from testkit.openenv_sessions import stand_in

DESCRIBED = {
    "model": "tiny",
    "base_url": "http://127.0.0.1:9/v1",
    "token": "secret",
    "session": "one",
}
SAMPLING = {"temperature": 1.0}


async def why_it_does_not_start(interpreter: Path | str, factory: str) -> str:
    given = {"name": "coder", "factory": factory, "interpreter": interpreter, "reset_seconds": 300}
    helper = OpenEnvHelper(OpenEnvSessionEnvironment.model_validate(given), {})
    try:
        with pytest.raises(EnvironmentFailedError) as failed:
            await helper.start("{}", DESCRIBED, SAMPLING)
    finally:
        await helper.close()
    return str(failed.value)


async def test_a_python_without_openenv_and_a_factory_that_cannot_be_loaded(tmp_path: Path) -> None:
    said = await why_it_does_not_start(sys.executable, "json:loads")
    assert said == f"interpreter: {sys.executable} has no openenv; install openenv==0.10.0 there"
    (tmp_path / "agent.py").write_text("raise ValueError('no key')")
    file = f"{tmp_path}/agent.py:make"
    python = stand_in(tmp_path)
    said = await why_it_does_not_start(python, file)
    assert said == f"interpreter: {python} cannot load factory {file!r} (ValueError: no key)"


async def test_a_session_that_cannot_be_made_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("def make(task):\n    pass\n")
    given = {
        "name": "coder",
        "factory": f"{tmp_path}/agent.py:make",
        "interpreter": stand_in(tmp_path),
    }
    helper = OpenEnvHelper(
        OpenEnvSessionEnvironment.model_validate({**given, "reset_seconds": 300}), {}
    )
    try:
        for _ in range(2):
            rollout = await helper.start('{"task": 1}', DESCRIBED, SAMPLING)
            assert await rollout.wait(120)
            assert rollout.how_it_failed == "failed in OpenEnv"
            assert "TypeError: make() missing 1 required positional argument" in rollout.last_lines
            assert rollout.trace() is None
    finally:
        await helper.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"calls": [["a"]], "reward": 1.0, "late": False},
        {"calls": 3, "reward": 1.0, "late": False},
        {"calls": [["a", [[1, None]]]], "reward": 1.0, "late": False},
        {"calls": []},
        {"calls": [], "reward": 1.0, "late": False, "metrics": 3},
    ],
)
def test_a_trace_that_is_none(answer: dict[str, Any]) -> None:
    rollout = OpenEnvRollout(None, 1)  # type: ignore[arg-type]
    rollout.note(answer)
    with pytest.raises(EnvironmentFailedError, match="its process sent an invalid trace"):
        rollout.trace()


def test_a_call_is_known_by_all_its_tokens() -> None:
    assert call_digest([1, 2], [3]) == call_digest((1, 2), (3,))
    assert len({call_digest([1, 2], [3]), call_digest([1], [2, 3]), call_digest([1, 2], [4])}) == 3
    with pytest.raises(OverflowError):
        call_digest([1 << 63], [])


@pytest.mark.parametrize(
    ("mask", "without_loss"),
    [
        ([], []),
        ([1, 1], []),
        ([0, 0], [[0, 2]]),
        ([0, 1, 1, 0, 0, 1], [[0, 1], [3, 5]]),
        ([1, 0], [[1, 2]]),
    ],
)
def test_the_tokens_without_loss(mask: list[int], without_loss: list[list[int]]) -> None:
    assert ranges(mask) == without_loss
