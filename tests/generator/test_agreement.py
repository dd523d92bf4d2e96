"""The most used architecture: trainer and generator agree, over updates that travel as in a run.

tests/generator/test_architectures.py has all others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.config.run import parse_run_config
from rollcast.local.ports import free_port
from rollcast.trainer.learner.ranks import Ranks
from tests.generator.agreement import TOLERANCE, UPDATES, check_slots, gaps, sample
from tests.generator.conftest import Versions
from tests.generator.live_pair import joined_pair

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]


async def test_every_logprob_agrees_before_and_after_updates(
    versions: Versions, ranks: Ranks, tmp_path: Path
) -> None:
    config = parse_run_config(
        {
            "run": "test",
            "folder": str(tmp_path),
            "model": versions.config.model.model_dump(mode="json"),
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 128,
                "optimizer": {"learning_rate": 3e-3, "warmup_steps": 0},
            },
            "trainer": {"tokens_per_micro_batch": 1000, "logits_chunk_tokens": 256},
            "generator": versions.config.generator.model_dump(mode="json"),
            "weights": {
                "bucket_bytes": 1 << 16,
                "coalesce_seconds": 0.0,
                "heartbeat_timeout_seconds": 600.0,
            },
            "rpc": {"port": free_port("127.0.0.1")},
        },
        source="test",
    )
    async with joined_pair(config, ranks, versions.engine) as pair:
        first: list[Any] = []
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences = await sample(pair)
            assert gaps(pair, sequences).max() < TOLERANCE
            first = first or sequences
            assert pair.group.update(sequences).applied
        assert gaps(pair, first).max() > 0.05, (
            "the updates moved nothing: the old log-probs would agree as well"
        )
        check_slots(pair, config)
