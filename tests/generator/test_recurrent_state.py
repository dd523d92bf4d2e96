"""A recurrent state lives through weight updates: every log-prob equals a replay that rebuilds the
state part by part.

The model is a Qwen3.5 as it is published, of which the text model is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rollcast.config.run import parse_run_config
from rollcast.generator.sampling import RolloutSampler
from rollcast.rollouts.records import LengthBudget
from testkit.tiny_model import make_whole_qwen3_5
from tests.generator.conftest import Versions, make_task, random_prompt, sample_all

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TOLERANCE = 1e-4
BLOCK_TOKENS = 64
"""vLLM makes a block of this model at least that long, so that its KV entries take as much as a
state."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def versions(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    folder = tmp_path_factory.mktemp("generator")
    make_whole_qwen3_5(folder / "model", max_length=512)
    config = parse_run_config(
        {
            "run": "test",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 512},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 128,
                "max_completion_tokens": 384,
            },
            "generator": {"slots": 16, "block_size": BLOCK_TOKENS},
        },
        source="test",
    )
    versions = await Versions.start(config, folder, is_compiled=True)
    yield versions
    versions.engine.shutdown()


async def test_rollouts_straddle_updates(versions: Versions) -> None:
    await versions.apply(1)
    task = make_task(1, random_prompt(1, 90), LengthBudget(max_tokens=250), rollouts=6)
    rollouts = await sample_all(versions, task, [None] * 6, list(range(2, 6)), pause=0.3)
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    for rollout in rollouts:
        assert not rollout.kv_marks, "nothing was computed again"
        assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_a_second_leg_computes_the_state_again_and_its_mark_says_from_where(
    versions: Versions,
) -> None:
    await versions.apply(20)
    phrase = (30, 31, 32)
    length = LengthBudget(
        max_tokens=140, interrupt_from=70, interrupt_to=80, answer_tokens=40, phrase=phrase, seed=3
    )
    for sequence, num_prompt, kept in ((20, 40, 0), (21, 100, BLOCK_TOKENS)):
        task = make_task(sequence, random_prompt(sequence, num_prompt), length, rollouts=3)
        rollouts = await sample_all(versions, task, [None] * 3, [sequence + 10], pause=0.2)
        cut = [rollout for rollout in rollouts if rollout.interrupted]
        assert cut
        assert {rollout.kv_marks[0].num_kept for rollout in cut} == {kept}
        for rollout in rollouts:
            assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_a_rollout_that_goes_on_elsewhere_computes_the_state_again(
    versions: Versions,
) -> None:
    await versions.apply(40)
    task = make_task(3, random_prompt(3), LengthBudget(max_tokens=200))
    samplers = [RolloutSampler(versions.engine, task, index) for index in range(3)]
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    await asyncio.sleep(0.3)
    await versions.apply(41)
    await asyncio.sleep(0.2)
    for sampler in samplers:
        sampler.stop()
    await asyncio.wait_for(asyncio.gather(*running), 10)
    await versions.engine.observe()
    partial = [
        rollout
        for sampler in samplers
        if (rollout := sampler.rollout()).partial and rollout.num_tokens
    ]
    assert partial
    await versions.apply(42)
    for rollout in await sample_all(versions, task, list(partial), [43]):
        assert rollout.kv_marks[0].num_kept == 0
        assert versions.largest_gap(rollout, task) < TOLERANCE
