"""Drafts for every kind of attention, for experts and for two workers: replayed exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.rollouts.records import LengthBudget
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all, small_run
from tests.generator.drafting import LOW_TEMPERATURE, NGRAM, make_long_texts, with_drafts

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4


@pytest.mark.parametrize(
    ("architecture", "workers"),
    [
        pytest.param("qwen3", 2, id="two workers"),
        pytest.param("qwen3_moe", 1, id="experts"),
        pytest.param("deepseek_v3", 1, id="latent attention and experts"),
        pytest.param("gemma2", 1, id="windows and caps"),
        pytest.param("gpt_oss", 1, id="windows, sinks and experts"),
    ],
)
async def test_accepted_drafts_and_updates_in_flight_are_replayed(
    tmp_path: Path, architecture: str, workers: int
) -> None:
    make_long_texts(tmp_path / "model", architecture)
    config = with_drafts(small_run(tmp_path), NGRAM, tensor_parallel=workers)
    versions = await Versions.start(config, tmp_path)
    try:
        await versions.begin()
        task = make_task(
            1,
            random_prompt(1),
            LengthBudget(max_tokens=60),
            rollouts=4,
            temperature=LOW_TEMPERATURE,
        )
        rollouts = await sample_all(versions, task, [None] * 4, [1, 2])
        assert max(len(rollout.version_spans) for rollout in rollouts) >= 2
        for rollout in rollouts:
            assert versions.largest_gap(rollout, task) < TOLERANCE
        assert versions.engine.counts.accepted_tokens > 0
    finally:
        versions.engine.shutdown()
