"""The trainer publishes its adapter alone, and vLLM's LoRA gives its log-probs, updates in flight
included.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
import yaml
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.sampling import RolloutSampler
from rollcast.local.ports import free_port
from rollcast.rollouts.records import LengthBudget
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.wire.version import PolicyVersion
from testkit.replay import replay_logprobs
from testkit.tiny_model import make_architecture
from tests.generator.conftest import make_task, random_prompt
from tests.generator.live_pair import SLOTS, LivePair, live_pair, training_sequence

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TOLERANCE = 1e-4
UPDATES = 3
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 24, 40, 100
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
Report = Callable[[str, object], None]


def settings(
    folder: Path, architecture: str, lora: dict[str, Any], **changes: Any
) -> dict[str, Any]:
    make_architecture(folder / "model", architecture)
    recipe = {
        "length_control": {"kind": "none"},
        "max_prompt_tokens": 64,
        "max_completion_tokens": 128,
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0},
        "router_replay": changes.get("router_replay", False),
    }
    return {
        "run": "test",
        "folder": str(folder / "runs"),
        "model": {
            "path": str(folder / "model"),
            "dtype": changes.get("dtype", "float32"),
            "max_length": 256,
            "lora": lora,
        },
        "recipe": recipe,
        "trainer": {"tokens_per_micro_batch": 1000, "logits_chunk_tokens": 256},
        "generator": {
            "slots": SLOTS,
            "block_size": 32,
            "tensor_parallel": changes.get("tensor_parallel", 1),
        },
        "weights": {
            "bucket_bytes": 1 << 16,
            "coalesce_seconds": 0.0,
            "heartbeat_timeout_seconds": 600.0,
        },
        "rpc": {"port": free_port("127.0.0.1")},
    }


@contextmanager
def one_rank() -> Iterator[Ranks]:
    joined = join_ranks(timeout_seconds=60, threads=1)
    try:
        yield joined
    finally:
        joined.leave()


@contextmanager
def first_of_two_ranks(run_file: Path) -> Iterator[Ranks]:
    """This process and another over gloo, as under torchrun."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as under torchrun, whose agent holds the store
    }
    environment = {
        **os.environ,
        **common,
        "PYTHONPATH": ":".join(sys.path),
        "OMP_NUM_THREADS": "1",
        "RANK": "1",
    }
    command = [sys.executable, "-m", "tests.generator.lora_follower", str(run_file)]
    follower = subprocess.Popen(command, env=environment)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**common, "RANK": "0"}.items():
                patch.setenv(name, value)
            with one_rank() as joined:
                yield joined
                assert follower.wait(60) == 0
    finally:
        follower.kill()
        follower.wait(60.0)


async def sample(pair: LivePair) -> list[TrainingSequence]:
    prompts = [random_prompt(seed, PROMPT_TOKENS) for seed in range(PROMPTS)]
    sampled = await pair.sample(prompts, MAX_TOKENS)
    assert all(
        len(one.spans) == 1 and one.spans[0].version == pair.engine.version for one in sampled
    )
    return [
        training_sequence(prompt, one, advantage=1.0 - 2.0 * (index % 2))
        for index, (prompt, one) in enumerate(zip(prompts, sampled, strict=True))
    ]


async def train(
    pair: LivePair, name: str, report: Report
) -> tuple[list[float], list[TrainingSequence]]:
    """Largest gap of each of several updates; and the rollouts of the first version, as stale as
    they are by then.
    """
    found: list[float] = []
    first: list[TrainingSequence] = []
    for step in range(UPDATES):
        await pair.publish(step)
        sequences = await sample(pair)
        first = first or sequences
        stats = pair.group.update(sequences)
        assert stats.applied
        found.append(stats.logprob_gap_max)
        report(
            f"{name}: gap after {step} updates, mean and largest",
            (stats.logprob_gap_mean, stats.logprob_gap_max),
        )
    return found, first


async def test_two_ranks_and_the_generator_agree_through_updates_in_flight(
    tmp_path: Path, record_testsuite_property: Report
) -> None:
    given = settings(tmp_path, "qwen3", {"rank": 5, "alpha": 10})
    run_file = tmp_path / "run.yaml"
    run_file.write_text(yaml.safe_dump(given))
    config = parse_run_config(given, source="test")
    with first_of_two_ranks(run_file) as ranks:
        async with live_pair(config, ranks) as pair:
            found, first = await train(pair, "LoRA, float32", record_testsuite_property)
            assert max(found) < TOLERANCE
            assert pair.group.update(first).logprob_gap_max > 0.05, "the updates moved nothing"
            check_bytes(pair, config)
            await check_in_flight(pair, config, tmp_path)
            pair.group.stop(TrainerEnding.FINISHED)


def check_bytes(pair: LivePair, config: RunConfig) -> None:
    """Only the adapter travels."""
    assert len(pair.group.specs) == 2 * 7 * 2
    assert all(
        spec.name.endswith((".lora_A.weight", ".lora_B.weight")) for spec in pair.group.specs
    )
    stored = load_file(Path(config.model.path) / "model.safetensors")
    num_adapted = [
        sum(value.shape) for name, value in stored.items() if name.endswith("_proj.weight")
    ]
    assert sum(spec.num_bytes for spec in pair.group.specs) == 5 * sum(num_adapted) * 4


async def check_in_flight(pair: LivePair, config: RunConfig, folder: Path) -> None:
    """Each span and mark of rollouts that straddle updates, replayed with PEFT's own model."""
    assert config.model.lora is not None
    weights: dict[PolicyVersion, dict[str, Any]] = {}

    async def publish(step: int) -> None:
        pair.group.export(folder / "export")
        adapter = load_file(folder / "export" / "adapter_model.safetensors")
        weights[PolicyVersion(1, step)] = {
            name.replace(".weight", ".default.weight"): value for name, value in adapter.items()
        }
        await pair.publish(step)

    await publish(10)
    task = make_task(1, random_prompt(1, PROMPT_TOKENS), LengthBudget(max_tokens=200), rollouts=8)
    samplers = [RolloutSampler(pair.engine, task, index) for index in range(8)]
    sequences = await sample(pair)
    assert pair.group.update(sequences).applied
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    await asyncio.sleep(0.05)
    await publish(11)
    assert pair.group.update(sequences).applied
    await publish(12)
    await asyncio.wait_for(asyncio.gather(*running), 60)
    await pair.engine.observe()
    rollouts = [sampler.rollout() for sampler in samplers]
    assert max(len(rollout.version_spans) for rollout in rollouts) >= 2
    lora = LoraConfig(
        r=config.model.lora.rank, lora_alpha=config.model.lora.alpha, target_modules="all-linear"
    )
    model = get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(config.model.path), lora
    ).eval()
    prompt = task.prompt_token_ids.tolist()
    for rollout in rollouts:
        replayed = replay_logprobs(rollout, prompt, weights, model)
        assert np.abs(replayed - rollout.logprobs).max() < TOLERANCE
    straddling = next(rollout for rollout in rollouts if len(rollout.version_spans) > 1)
    alike = dict.fromkeys(weights, weights[straddling.version_spans[0].version])
    assert (
        np.abs(replay_logprobs(straddling, prompt, alike, model) - straddling.logprobs).max() > 0.01
    )


async def test_in_bfloat16_the_gap_is_that_of_rounding(
    tmp_path: Path, record_testsuite_property: Report
) -> None:
    config = parse_run_config(
        settings(tmp_path, "llama", {"rank": 8, "alpha": 16}, dtype="bfloat16"), source="test"
    )
    with one_rank() as ranks:
        async with live_pair(config, ranks) as pair:
            found, first = await train(pair, "LoRA, bfloat16", record_testsuite_property)
            assert max(found) < pair.group.update(first).logprob_gap_max / 2


async def test_the_attention_of_a_mixture_is_adapted(
    tmp_path: Path, record_testsuite_property: Report
) -> None:
    """With its routing replayed, and two tensor-parallel workers that load one staged version."""
    lora = {"rank": 4, "alpha": 8, "targets": ATTENTION}
    given = settings(tmp_path, "qwen3_moe", lora, router_replay=True, tensor_parallel=2)
    with one_rank() as ranks:
        async with live_pair(parse_run_config(given, source="test"), ranks) as pair:
            found, first = await train(pair, "LoRA, mixture", record_testsuite_property)
            assert max(found) < TOLERANCE
            assert pair.group.update(first).logprob_gap_max > 0.05
