"""Speculative decoding: whatever is drafted, tokens are the model's own, and replayed exactly."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from rollcast.config.errors import UserError
from rollcast.rollouts.records import LengthBudget, StopReason
from testkit.tiny_model import make_architecture, make_tiny_model, perturb
from tests.generator.conftest import (
    SEED_OF_STEP_0,
    TIGHT,
    Versions,
    make_task,
    random_prompt,
    sample_all,
    small_run,
)
from tests.generator.drafting import LOW_TEMPERATURE, NGRAM, make_long_texts, with_drafts

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def drafted_by_model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    """A Qwen3; step 1 has the weights of the model that drafts."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("drafting")
    make_tiny_model(folder / "model")
    shutil.copytree(folder / "model", folder / "drafting")
    model = AutoModelForCausalLM.from_pretrained(folder / "drafting", dtype=torch.float32)
    model.load_state_dict(perturb(model.state_dict(), SEED_OF_STEP_0 + 1))
    model.save_pretrained(folder / "drafting")
    drafts = {
        "method": "draft_model",
        "model": str(folder / "drafting"),
        "num_speculative_tokens": 3,
    }
    versions = await Versions.start(with_drafts(small_run(folder), drafts), folder)
    await versions.begin()
    yield versions
    versions.engine.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def drafted_by_ngrams(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    """A Llama whose memory is too small for the rollouts of a test."""
    folder = tmp_path_factory.mktemp("ngrams")
    make_long_texts(folder / "model", "llama")
    versions = await Versions.start(with_drafts(small_run(folder), NGRAM), folder, **TIGHT)
    await versions.begin()
    yield versions
    versions.engine.shutdown()


async def test_rollouts_of_a_drafting_model_straddle_updates(drafted_by_model: Versions) -> None:
    versions = drafted_by_model
    await versions.apply(1)
    budget = LengthBudget(
        max_tokens=300, interrupt_from=90, interrupt_to=110, answer_tokens=80, phrase=(30, 31, 32)
    )
    task = make_task(1, random_prompt(1), budget, rollouts=8, temperature=0.7)
    rollouts = await sample_all(versions, task, [None] * 8, [2, 3, 4])
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    assert any(rollout.interrupted for rollout in rollouts)
    for rollout in rollouts:
        assert rollout.stop_reason in (StopReason.END, StopReason.LENGTH)
        assert versions.largest_gap(rollout, task) < TOLERANCE


async def test_a_model_accepts_its_own_drafts_and_few_of_another_version(
    drafted_by_model: Versions,
) -> None:
    """At temperature 0: the likeliest token is drafted, and is the one that is sampled."""
    versions = drafted_by_model
    shares = []
    for step in (1, 5):
        await versions.apply(step)
        before = versions.engine.counts
        task = make_task(10 + step, random_prompt(9), LengthBudget(max_tokens=100), temperature=0.0)
        await sample_all(versions, task, [None] * 4, [])
        counts = versions.engine.counts
        drafted = counts.drafted_tokens - before.drafted_tokens
        accepted = counts.accepted_tokens - before.accepted_tokens
        assert drafted >= 100
        shares.append(accepted / drafted)
    assert shares[0] > 0.95, "a tie may fall otherwise in another batch"
    assert shares[1] < 0.5


async def test_drafts_for_a_recurrent_model_are_refused(tmp_path: Path) -> None:
    make_architecture(tmp_path / "model", "qwen3_next", max_length=512)
    with pytest.raises(UserError, match="recurrent layers cannot set their state back"):
        await Versions.start(with_drafts(small_run(tmp_path), NGRAM), tmp_path)


async def test_a_missing_model_that_drafts_is_named(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model")
    drafts = {"method": "draft_model", "model": "/no/model", "num_speculative_tokens": 3}
    with pytest.raises(
        UserError, match=r"speculative_config\.model = '/no/model': there is no such"
    ):
        await Versions.start(with_drafts(small_run(tmp_path), drafts), tmp_path)


async def test_rebuilt_kv_of_ngrams_is_marked_and_replayed(drafted_by_ngrams: Versions) -> None:
    versions = drafted_by_ngrams
    await versions.apply(101)
    # Together they would need twice the blocks that there are.
    task = make_task(
        2,
        random_prompt(2, 90),
        LengthBudget(max_tokens=160),
        rollouts=8,
        temperature=LOW_TEMPERATURE,
    )
    rollouts = await sample_all(
        versions, task, [None] * 8, [101 + step for step in range(1, 8)], pause=0.08
    )
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    assert sum(rollout.preemptions for rollout in rollouts) > 0
    assert any(rollout.kv_marks for rollout in rollouts)
    for rollout in rollouts:
        assert versions.largest_gap(rollout, task) < TOLERANCE
    assert 0 < versions.engine.counts.accepted_tokens < versions.engine.counts.drafted_tokens
