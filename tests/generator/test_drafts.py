"""Speculative decoding: whatever is drafted, tokens are the model's own, and replayed exactly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollcast.config.engine_arguments import EngineArguments
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.generator.vllm.engine_start import check_drafts
from rollcast.rollouts.records import LengthBudget, StopReason
from testkit.tiny_model import make_architecture, make_tiny_model
from tests.generator.conftest import (
    TIGHT,
    Versions,
    make_task,
    random_prompt,
    sample_all,
    small_run,
)

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOLERANCE = 1e-4
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}


def with_drafts(config: RunConfig, drafts: dict[str, Any]) -> RunConfig:
    engine = EngineArguments.model_validate({"speculative_config": drafts})
    generator = config.generator.model_copy(update={"engine": engine})
    return config.model_copy(update={"generator": generator})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def drafted_by_model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    """A Qwen3 whose drafts come from the weights that its versions are made from."""
    folder = tmp_path_factory.mktemp("drafting")
    make_tiny_model(folder / "model")
    drafts = {"method": "draft_model", "model": str(folder / "model"), "num_speculative_tokens": 3}
    versions = await Versions.start(with_drafts(small_run(folder), drafts), folder)
    await versions.begin()
    yield versions
    versions.engine.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def drafted_by_ngrams(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Versions]:
    """A Llama whose memory is too small for the rollouts of a test."""
    folder = tmp_path_factory.mktemp("ngrams")
    make_architecture(folder / "model", "llama", max_length=512)
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
    counts = versions.engine.counts
    # Random weights would be right for one token of 64.
    assert 0.1 * counts.drafted_tokens < counts.accepted_tokens < counts.drafted_tokens


async def test_rebuilt_kv_of_ngrams_is_marked_and_replayed(drafted_by_ngrams: Versions) -> None:
    versions = drafted_by_ngrams
    await versions.apply(101)
    task = make_task(2, random_prompt(2, 90), LengthBudget(max_tokens=250), rollouts=12)
    rollouts = await sample_all(
        versions, task, [None] * 12, [101 + step for step in range(1, 8)], pause=0.08
    )
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 3
    assert sum(rollout.preemptions for rollout in rollouts) > 0
    assert any(rollout.kv_marks for rollout in rollouts)
    for rollout in rollouts:
        assert versions.largest_gap(rollout, task) < TOLERANCE
    assert 0 < versions.engine.counts.accepted_tokens < versions.engine.counts.drafted_tokens
