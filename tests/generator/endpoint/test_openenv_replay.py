"""Harness sessions of OpenEnv at a real engine while weights are updated:
a plain replay decides.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from rollcast.rollouts.records import Branch, EpisodeEnd, LegKind, LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import WORLD, episode_task
from testkit.generator.harness_endpoint import served_endpoint
from testkit.openenv_sessions import AGENT, installed_openenv, stand_in
from testkit.replay import replay_logprobs
from tests.generator.conftest import Versions

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1_200),
]

TOLERANCE = 1e-4
PAUSE_SECONDS = 0.03


@pytest.mark.parametrize("has_package", [False, True], ids=["stand-in", "installed"])
async def test_sampled_tokens_are_exact_and_masked_ones_without_loss(
    versions: Versions, tmp_path: Path, has_package: bool
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    interpreter = installed_openenv() if has_package else stand_in(tmp_path / "packages")
    given = {"factory": f"{tmp_path / 'agent.py'}:Factory", "interpreter": interpreter}
    deadlines = {"reset_seconds": 600, "call_seconds": 300, "restarts": 0}
    steps = itertools.count(1)
    await versions.apply(next(steps))
    task = episode_task(1, 1, LengthBudget(max_tokens=400), max_seconds=900)
    sampled_by = set()
    async with served_endpoint(versions.engine, given | deadlines) as endpoint:
        for mode in ("three", "branches"):
            asked = dataclasses.replace(task, reference=json.dumps({"task": {"mode": mode}}))
            sampler = endpoint.sampler(asked)
            playing = asyncio.create_task(sampler.run())
            while not playing.done():
                await versions.apply(next(steps))
                await asyncio.sleep(PAUSE_SECONDS)
            await playing
            await versions.engine.observe()
            rollout = sampler.rollout()
            assert rollout.episode is not None
            assert rollout.episode.end is not EpisodeEnd.FAILED, rollout.episode.reason
            assert [turn.sequence for turn in rollout.episode.turns] == [
                0,
                0,
                0 if mode == "three" else 1,
            ]
            for sequence in rollout.sequences:
                sampled_by |= {span.version for span in sequence.version_spans}
                check_exact(
                    versions,
                    sequence,
                    rollout.sequence_prompt(sequence, task.prompt_token_ids).tolist(),
                )
            if mode == "three":
                check_masks_of_three(rollout)
        assert endpoint.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == 0
    assert len(sampled_by) > 2


def check_exact(versions: Versions, sequence: Rollout | Branch, prompt: list[int]) -> None:
    """Every token with loss is replayed by plain Hugging Face; given ones have none."""
    replayed = replay_logprobs(sequence, prompt, versions.weights, versions.model)
    has_loss = np.ones(len(sequence.token_ids), dtype=np.bool_)
    for start, end in sequence.loss_masked:
        has_loss[start:end] = False
    assert has_loss.any()
    assert abs(replayed - sequence.logprobs)[has_loss].max() < TOLERANCE
    for leg in sequence.legs:
        assert leg.kind is not LegKind.GIVEN or not has_loss[leg.start : leg.end].any()


def check_masks_of_three(rollout: Rollout) -> None:
    """Its trace takes the loss from the second turn, and from the last token but one."""
    assert rollout.episode is not None
    second, third = rollout.episode.turns[1:]
    masked = {at for start, end in rollout.loss_masked for at in range(start, end)}
    assert masked.issuperset(range(second.start, second.end))
    assert masked.intersection(range(third.start, third.end)) == {third.end - 2}
