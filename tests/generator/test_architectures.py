"""Trainer and generator give the same log-probs, before and after updates that travelled as in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local.ports import free_port
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from testkit.tiny_model import make_architecture
from tests.generator.conftest import random_prompt
from tests.generator.live_pair import SLOTS, LivePair, live_pair, training_sequence

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TOLERANCE = 1e-4
UPDATES = 3
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 24, 40, 100

Routing = NDArray[np.int64]
"""[..., positions, routing layers, experts per token]; every row is sorted: a set."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    joined = join_ranks(timeout_seconds=30, threads=1)
    yield joined
    joined.leave()


def run_config(folder: Path, architecture: str) -> RunConfig:
    make_architecture(folder / "model", architecture)
    return parse_run_config(
        {
            "run": "test",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 256},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 128,
                "optimizer": {"learning_rate": 3e-3, "warmup_steps": 0},
            },
            "trainer": {"tokens_per_micro_batch": 1000, "logits_chunk_tokens": 256},
            "generator": {"slots": SLOTS, "block_size": 32},
            "weights": {"bucket_bytes": 1 << 16, "coalesce_seconds": 0.0},
            "rpc": {"port": free_port("127.0.0.1")},
        },
        source="test",
    )


async def sample(pair: LivePair) -> tuple[list[TrainingSequence], list[str]]:
    """Rollouts of the version that the engine holds, as the learner takes them, and the ids of their requests."""
    prompts = [random_prompt(seed, PROMPT_TOKENS) for seed in range(PROMPTS)]
    sampled = await pair.sample(prompts, MAX_TOKENS)
    assert all(len(one.spans) == 1 and one.spans[0].version == pair.engine.version for one in sampled)
    sequences = [
        training_sequence(prompt, one, advantage=1.0 - 2.0 * (index % 2))
        for index, (prompt, one) in enumerate(zip(prompts, sampled, strict=True))
    ]
    return sequences, [one.request_id for one in sampled]


def gaps(pair: LivePair, sequences: Sequence[TrainingSequence]) -> NDArray[np.float32]:
    generator = np.concatenate([sequence.generator_logprobs for sequence in sequences])
    assert len(generator) > 500
    assert generator.std() > 0.5, "every token equally likely: nothing is compared"
    return np.abs(pair.logprobs(sequences) - generator)


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gemma2"])
async def test_every_logprob_agrees_before_and_after_updates(
    architecture: str, ranks: Ranks, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    async with live_pair(run_config(tmp_path, architecture), ranks) as pair:
        first: list[TrainingSequence] = []
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences, _ = await sample(pair)
            largest = float(gaps(pair, sequences).max())
            record_testsuite_property(f"{architecture}: largest gap after {step} updates", largest)
            assert largest < TOLERANCE
            first = first or sequences
            assert pair.group.update(sequences).applied
        assert gaps(pair, first).max() > 0.05, "the updates moved nothing: the old log-probs would agree as well"


async def test_mixture_of_experts_agrees_but_for_router_flips(
    ranks: Ranks, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    worker = "tests.generator.routing_worker.RoutingWorker"
    async with live_pair(run_config(tmp_path, "qwen3_moe"), ranks, worker=worker) as pair:
        trainer = TrainerRouting(pair.group.learner.policy)
        await pair.engine.call("tap_routers")
        first: tuple[list[TrainingSequence], list[Routing]] | None = None
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences, requests = await sample(pair)
            agree = gaps(pair, sequences) < TOLERANCE
            generator = [np.sort((await pair.engine.call("take_routing", request))[0], axis=-1) for request in requests]
            flips = router_flips(sequences, generator, trainer)
            record_testsuite_property(f"qwen3_moe: share that agrees after {step} updates", float(agree.mean()))
            record_testsuite_property(f"qwen3_moe: router flips after {step} updates", int(flips.sum()))
            assert agree.mean() >= 0.999
            assert agree[~seen_flips(sequences, flips)].all(), "a gap that no flip explains"
            first = first or (sequences, generator)
            assert pair.group.update(sequences).applied
        assert first is not None
        assert gaps(pair, first[0]).max() > 0.05, "the updates moved nothing: the old log-probs would agree as well"
        assert router_flips(*first, trainer).sum() > 0, "other weights choose other experts, and nothing was counted"


class TrainerRouting:
    """What the routers of a Hugging Face model chose in its last forward pass."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._chosen: dict[str, torch.Tensor] = {}
        for name, module in model.named_modules():
            if type(module).__name__.endswith("TopKRouter"):
                module.register_forward_hook(lambda *call, name=name: self._chosen.update({name: call[-1][2]}))

    def chosen(self, num_sequences: int) -> Routing:
        """[sequences, padded positions, routing layers, experts per token], layers in the model's order."""
        stacked = torch.stack(list(self._chosen.values()), dim=1).numpy()
        return np.sort(stacked.reshape(num_sequences, -1, *stacked.shape[1:]), axis=-1)


def router_flips(
    sequences: Sequence[TrainingSequence], generator: Sequence[Routing], trainer: TrainerRouting
) -> NDArray[np.int64]:
    """[sequences, padded positions]: layers in which the two sides sent a token to different sets of experts."""
    ours = trainer.chosen(len(sequences))
    flips = np.zeros(ours.shape[:2], dtype=np.int64)
    for row, (sequence, theirs) in enumerate(zip(sequences, generator, strict=True)):
        inputs = sequence.num_tokens - 1  # the last token is nobody's input
        assert theirs.shape == (inputs, *ours.shape[2:])
        differ = (ours[row, :inputs] != theirs).any(axis=-1)
        flips[row, :inputs] = differ.sum(axis=-1)
    return flips


def seen_flips(sequences: Sequence[TrainingSequence], flips: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Of every completion token: was any token that it attends to, routed differently?"""
    seen = np.cumsum(flips, axis=1) > 0
    return np.concatenate(
        [
            seen[row, len(sequence.prompt_token_ids) - 1 : sequence.num_tokens - 1]
            for row, sequence in enumerate(sequences)
        ]
    )
