"""Harness sessions of OpenEnv over the real endpoint, with an engine without a model."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from rollcast.environments.harness import helper
from rollcast.rollouts.records import EpisodeEnd, LengthBudget
from rollcast.telemetry import episode_metrics
from rollcast.trainer.control.episode_defects import episode_defect
from testkit.connections.certificates import make_certificates
from testkit.generator.episode_tasks import MAX_LENGTH, WORLD, episode_task
from testkit.openenv_sessions import stand_in
from tests.generator.endpoint.openenv_rollouts import (
    check_failed,
    played,
    sampled_without_loss,
    sampler_of,
    served,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1_200)]
"""The first test to import vLLM waits for it, on a busy machine for minutes; so does the import of
openenv."""


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """A Python with the classes of openenv that the adapter uses; test_installed_openenv.py has
    openenv itself.
    """
    folder = tmp_path / "packages"
    folder.mkdir()
    return stand_in(folder)


async def test_reward_branches_and_masks_are_the_sessions(
    interpreter: Path, tmp_path: Path
) -> None:
    async with served(interpreter, tmp_path, arguments={"door": "blue"}) as endpoint:
        sampler, rollout = await played(endpoint, "branches", closed=str(tmp_path / "closed"))
        assert rollout.episode is not None
        assert rollout.episode.metrics == {"rooms": 2.0}, "the name of the hall is no number"
        assert rollout.episode.end is not EpisodeEnd.FAILED, rollout.episode.reason
        assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 1]
        assert not any(sampled_without_loss(sequence) for sequence in rollout.sequences)
        assert sampler.verdict is not None
        assert sampler.verdict.reward == 0.75
        assert (tmp_path / "closed").exists()

        _, rollout = await played(endpoint, "lacks")
        assert rollout.episode is not None
        assert [turn.sequence for turn in rollout.episode.turns] == [0, 0]
        assert not rollout.episode.branches

        _, rollout = await played(endpoint, "three")
        assert rollout.episode is not None
        second, third = rollout.episode.turns[1:]
        assert sampled_without_loss(rollout) == [
            (second.start, second.end),
            (third.end - 2, third.end - 1),
        ]
        task = episode_task(1, 1, LengthBudget(max_tokens=400))
        assert (
            episode_defect(rollout, rollout.episode, task, MAX_LENGTH, may_mask_sampled=True)
            is None
        )
        assert endpoint.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == 0

        check_failed(
            *await played(endpoint, "disagrees"),
            "has 3 calls of the model in its trace, which are not among the 3",
        )
        assert endpoint.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == 1
        _, rollout = await played(endpoint, "late")
        assert rollout.episode is not None
        assert rollout.episode.end is EpisodeEnd.SECONDS


async def test_a_session_verifies_the_certificate_of_the_endpoint(
    interpreter: Path, tmp_path: Path
) -> None:
    async with served(interpreter, tmp_path, tls=make_certificates(tmp_path / "tls")) as endpoint:
        sampler, rollout = await played(endpoint, "branches")
        assert endpoint.sessions.url.startswith("https://")
        assert rollout.episode is not None
        assert rollout.episode.end is not EpisodeEnd.FAILED, rollout.episode.reason
        assert sampler.verdict is not None
        assert sampler.verdict.reward == 0.75


async def test_failures_of_a_session_are_never_a_reward(interpreter: Path, tmp_path: Path) -> None:
    async with served(interpreter, tmp_path) as endpoint:
        for mode, reason in {
            "no reward": "gave no reward",
            "raises": "failed in OpenEnv: ConnectionError: no sandbox",
            "exit code": "has an agent that ended with exit code 3",
            "other schema": "has no TrainingTrace of schema 1 (ValidationError: ",
            "untraced": "has sessions (object) without fetch_training_trace",
            "crash": "failed in OpenEnv: its process ended",
        }.items():
            check_failed(*await played(endpoint, mode), reason)


def is_there(left: str, session: str, folder: str) -> bool:
    """Whether a process of the session is alive, or its folder exists."""
    processes_exist = psutil.pid_exists(int(left)) or psutil.pid_exists(int(session))
    return processes_exist or os.path.exists(folder)


async def test_sessions_are_ended_and_leave_nothing(interpreter: Path, tmp_path: Path) -> None:
    async with served(interpreter, tmp_path) as endpoint:
        for mode in ("crash", "hang", "stuck"):
            note = tmp_path / mode
            closed = tmp_path / f"closed-{mode}"
            sampler = sampler_of(endpoint, mode, note=str(note), closed=str(closed))
            running = asyncio.create_task(sampler.run())
            left, session, folder = await noted(note)
            if mode != "crash":
                sampler.stop()
            await asyncio.wait_for(running, 400)
            async with asyncio.timeout(120):
                while is_there(left, session, folder):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert closed.exists() is (mode == "hang")
        _, rollout = await played(endpoint, "branches")
        assert rollout.episode is not None
        assert rollout.episode.end is not EpisodeEnd.FAILED, "the others go on"


async def test_a_session_that_does_not_end_costs_the_others_no_restart(
    interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "CANCEL_SECONDS", 1.0)
    async with served(interpreter, tmp_path) as endpoint:
        notes = {mode: tmp_path / mode for mode in ("hang", "stuck")}
        samplers = {
            mode: sampler_of(endpoint, mode, note=str(note)) for mode, note in notes.items()
        }
        running = {mode: asyncio.create_task(sampler.run()) for mode, sampler in samplers.items()}
        for note in notes.values():
            await noted(note)
        notes["hang"].unlink()
        samplers["stuck"].stop()
        await noted(notes["hang"])
        assert not samplers["hang"].finished, "it began again, although restarts = 0"
        samplers["hang"].stop()
        await asyncio.wait(running.values(), timeout=400)


async def noted(note: Path) -> list[str]:
    """The parts of a note that a session writes."""
    async with asyncio.timeout(400):
        while len(found := parts_of(note)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


def parts_of(note: Path) -> list[str]:
    return note.read_text().split() if note.exists() else []
