"""Trainer and generator give the same log-probs, before and after updates that travelled as in a
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.completion import Completion
from rollcast.generator.sampling import RolloutSampler
from rollcast.local.ports import free_port
from rollcast.memory.proven_models import proven_models
from rollcast.rollouts.records import LengthBudget, RoutedExperts, loss_mask
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from testkit.quantised_model import write_fp8
from testkit.tiny_model import make_architecture, make_whole_llama4, make_whole_qwen3_5
from tests.generator.agreement import (
    MAX_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
    TOLERANCE,
    UPDATES,
    check_slots,
    gaps,
    sample,
)
from tests.generator.conftest import make_task, random_prompt
from tests.generator.expert_episodes import sample_episodes
from tests.generator.live_pair import SLOTS, LivePair, live_pair, training_sequence
from tests.generator.router_flips import TrainerRouting, router_flips, seen_flips

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("compiled"),
]

UNCOUNTED = ("nemotron_h",)
"""Whose memory the planner does not count."""
TWO_LEGS = ("qwen3_moe",)
"""Architectures of which a rollout is continued in its own prefix cache, and of which episodes are
sampled."""

RULES = Path(__file__).parents[2] / "helm" / "rollcast" / "files" / "rules.yaml"


def run_config(
    folder: Path,
    architecture: str,
    *,
    dtype: str = "float32",
    router_replay: bool = False,
    **generator: Any,
) -> RunConfig:
    if (
        architecture == "llama4"
    ):  # as its publisher stores it: the text model is a part of the checkpoint
        make_whole_llama4(folder / "model")
    elif architecture.startswith("qwen3_5"):
        make_whole_qwen3_5(folder / "model", architecture)
    elif architecture == "minimax_m2":  # as its publisher stores it: in 8 bits
        make_architecture(folder / "plain", architecture)
        write_fp8(folder / "plain", folder / "model", folder / "as float32")
    else:
        make_architecture(folder / "model", architecture)
    return parse_run_config(
        {
            "run": "test",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": dtype, "max_length": 256},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 128,
                "optimizer": {"learning_rate": 3e-3, "warmup_steps": 0},
                "router_replay": router_replay,
            },
            "trainer": {"tokens_per_micro_batch": 1000, "logits_chunk_tokens": 256},
            "generator": {"slots": SLOTS, "block_size": 32} | generator,
            "weights": {
                "bucket_bytes": 1 << 16,
                "coalesce_seconds": 0.0,
                # The learner computes in the loop that also sends the heartbeats; on a busy machine
                # that takes long.
                "heartbeat_timeout_seconds": 600.0,
            },
            "rpc": {"port": free_port("127.0.0.1")},
        },
        source="test",
    )


@pytest.mark.parametrize(
    "architecture", ["qwen3", "llama", "llama4", "gemma2", "cohere", "qwen3_5", "nemotron_h"]
)
async def test_every_logprob_agrees_before_and_after_updates(
    architecture: str,
    ranks: Ranks,
    tmp_path: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    has_experts = architecture == "llama4"
    config = run_config(
        tmp_path, architecture, router_replay=has_experts, engine={"max_num_batched_tokens": 1024}
    )
    async with live_pair(config, ranks) as pair:
        first: list[TrainingSequence] = []
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences = await sample(pair)
            largest = float(gaps(pair, sequences).max())
            record_testsuite_property(f"{architecture}: largest gap after {step} updates", largest)
            assert largest < TOLERANCE
            first = first or sequences
            assert pair.group.update(sequences).applied
        assert gaps(pair, first).max() > 0.05, (
            "the updates moved nothing: the old log-probs would agree as well"
        )
        if architecture not in UNCOUNTED:
            check_slots(pair, config)
        if has_experts:
            tie_experts(pair.group.learner.policy)
            await pair.publish(UPDATES + 1)
            sequences = await sample(pair)
            assert gaps(pair, sequences).max() > 0.01
            assert gaps(pair, sequences, replay=True).max() < TOLERANCE


async def test_what_changes_numbers_shows_in_the_gap_and_raises_its_alert(
    ranks: Ranks, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """8 bits, weights and KV cache; each version is quantised as it is applied, so that the gap
    stays what it is.

    vLLM keeps a KV cache of 8 bits on processors with AVX-512 or AMX alone; elsewhere it is the
    weights only.
    """
    engine = {"quantization": "fp8_per_channel"}
    if torch.cpu._is_avx512_supported() or torch.cpu._is_amx_tile_supported():
        engine["kv_cache_dtype"] = "fp8"
    config = run_config(tmp_path, "qwen3", dtype="bfloat16", engine=engine)
    alert = next(
        line
        for line in RULES.read_text().splitlines()
        if "avg_over_time(rollcast_logprob_gap{" in line
    )
    threshold = float(alert.rpartition(">")[2])
    async with live_pair(config, ranks) as pair:
        first: list[TrainingSequence] = []
        found = []
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences = await sample(pair, MAX_TOKENS // 2)  # 8 bits are slow on a CPU
            first = first or sequences
            found.append(pair.group.update(sequences).logprob_gap_mean)
            record_testsuite_property(f"8 bits: mean gap after {step} updates", found[-1])
        stale = float(gaps(pair, first).mean())
        record_testsuite_property(f"8 bits: mean gap of tokens {UPDATES + 1} updates old", stale)
        assert min(found) > threshold
        assert max(found) < stale / 2, (
            "the engine sampled with weights that the learner no longer has"
        )
        check_slots(pair, config)


@pytest.mark.parametrize("architecture", ["qwen3_moe", "llama"])
async def test_two_tensor_parallel_workers_agree_and_stage_a_version_once(
    architecture: str, ranks: Ranks, tmp_path: Path
) -> None:
    """Of a mixture of experts with a dense layer, and of a dense model.

    At last few weights have changed, experts are chosen by chance where there are any, and an
    update comes in flight.
    """
    has_experts = architecture == "qwen3_moe"
    config = run_config(tmp_path, architecture, router_replay=has_experts, tensor_parallel=2)
    async with live_pair(config, ranks) as pair:
        assert (pair.engine.stage, pair.engine.num_receivers) == ("host", 1)
        for step in range(2):
            await pair.publish(step)
            sequences = await sample(pair)
            assert float(gaps(pair, sequences, replay=has_experts).max()) < TOLERANCE
            assert pair.group.update(sequences).applied
        await pair.publish(2)
        (tie_experts if has_experts else widen_last_norm)(pair.group.learner.policy)
        await pair.publish(3)
        prompts = [random_prompt(seed, PROMPT_TOKENS) for seed in range(PROMPTS)]
        sampling = asyncio.create_task(pair.sample(prompts, 2 * MAX_TOKENS))
        await asyncio.sleep(0.05)  # it has begun
        await pair.publish(4)  # the same weights under another version, while tokens are sampled
        in_flight = [
            training_sequence(prompt, one, advantage=1.0)
            for prompt, one in zip(prompts, await sampling, strict=True)
            if [span.version.step for span in one.spans] == [3, 4]
        ]
        assert in_flight
        sampled = np.concatenate([sequence.generator_logprobs for sequence in in_flight])
        assert np.abs(pair.logprobs(in_flight, replay=has_experts) - sampled).max() < TOLERANCE
        if has_experts:
            assert np.abs(pair.logprobs(in_flight) - sampled).max() > 100 * TOLERANCE
        mapped = [memory for pid in engine_processes() if (memory := staged_memories(pid))]
        assert len(mapped) == 2, "both workers read it"
        assert len(set.union(*mapped)) == 1, "and there is one of it"


def widen_last_norm(policy: Policy) -> None:
    """Few weights, which change every log-prob."""
    reshard(policy)
    with torch.no_grad():
        dict(policy.named_weights())["model.norm.weight"].to_local().mul_(1.5)


def engine_processes() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]


def staged_memories(pid: int) -> set[str]:
    """Inodes of the memory of `host_memory` that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:rollcast-weights" in line}


@pytest.mark.parametrize(
    "architecture",
    [
        "qwen3_moe",
        "mixtral",
        "glm4_moe",
        "deepseek_v3",
        "minimax_m2",
        "qwen3_next",
        "qwen3_5_moe",
        "gpt_oss",
    ],
)
async def test_mixture_of_experts_agrees_where_its_routers_choose_alike(
    architecture: str,
    ranks: Ranks,
    tmp_path: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    async with live_pair(run_config(tmp_path, architecture, router_replay=True), ranks) as pair:
        trainer = TrainerRouting(pair.group.learner.policy)
        first: list[TrainingSequence] = []
        for step in range(UPDATES + 1):
            await pair.publish(step)
            sequences = await sample(pair)
            agree = gaps(pair, sequences) < TOLERANCE
            flips = router_flips(sequences, trainer)
            record_testsuite_property(
                f"{architecture}: share that agrees after {step} updates", float(agree.mean())
            )
            record_testsuite_property(
                f"{architecture}: router flips after {step} updates", int(flips.sum())
            )
            assert agree[~seen_flips(sequences, flips)].all(), "a gap that no flip explains"
            # Where two experts are within rounding of each other, the machine decides. One such
            # flip changes every later token of its sequence, so that the share of tokens that agree
            # says how early it came, not how rare.
            assert (flips > 0).any(axis=1).sum() <= 2
            first = first or sequences
            assert pair.group.update(sequences).applied
        assert gaps(pair, first).max() > 0.05, (
            "the updates moved nothing: the old log-probs would agree as well"
        )
        assert router_flips(first, trainer).sum() > 0, (
            "other weights choose other experts, and nothing was counted"
        )

        tie_experts(pair.group.learner.policy)
        await pair.publish(UPDATES + 1)
        runs = {"one leg": await sample(pair)}
        chosen_again: dict[str, NDArray[np.bool_]] = {}
        if architecture in TWO_LEGS:
            runs["two legs"], chosen_again["two legs"] = await sample_in_two_legs(pair)
            runs["episodes"], chosen_again["episodes"] = await sample_episodes(pair)
        for run, sequences in runs.items():
            without = gaps(pair, sequences)
            flipped = int(router_flips(sequences, trainer).sum())
            replayed = gaps(pair, sequences, replay=True)
            if (again := chosen_again.get(run)) is not None:
                assert again.mean() < 0.5
                replayed[again] = 0.0
                tokens = int(again.sum())
                record_testsuite_property(
                    f"{architecture}, {run}: tokens after a choice made again", tokens
                )
            record_testsuite_property(f"{architecture}, experts tied, {run}: router flips", flipped)
            record_testsuite_property(
                f"{architecture}, experts tied, {run}: mean gap", float(without.mean())
            )
            record_testsuite_property(
                f"{architecture}, experts tied, {run}: largest gap", float(without.max())
            )
            record_testsuite_property(
                f"{architecture}, experts tied, {run}: largest gap replayed", float(replayed.max())
            )
            assert flipped > 0
            assert without.max() > 0.01
            assert replayed.max() < TOLERANCE


async def sample_in_two_legs(pair: LivePair) -> tuple[list[TrainingSequence], NDArray[np.bool_]]:
    """The second leg finds the KV entries of the first in the prefix cache, and the experts must be
    found with them.

    What of the first leg is no whole block it computes again, and a tie may fall otherwise then.
    Also returned, of all sampled tokens: was it one of the first leg, after such a choice? The
    record has the choices that the second saw.
    """
    length = LengthBudget(
        max_tokens=120,
        interrupt_from=50,
        interrupt_to=60,
        answer_tokens=50,
        phrase=(30, 31, 32),
        seed=1,
    )
    task = make_task(1, random_prompt(1, PROMPT_TOKENS), length, rollouts=PROMPTS)
    samplers = [RolloutSampler(pair.engine, task, index) for index in range(PROMPTS)]
    firsts: dict[int, RoutedExperts] = {}
    record = Completion.record_experts

    def recorded(completion: Completion, start: int, experts: RoutedExperts) -> None:
        assert start == 0, "the second leg is asked for all that it sees"
        firsts.setdefault(completion.index, experts)
        record(completion, start, experts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completion, "record_experts", recorded)
        async with asyncio.timeout(120):
            await asyncio.gather(*(sampler.run() for sampler in samplers))
    await pair.engine.observe()
    rollouts = [sampler.rollout() for sampler in samplers]
    cut = [rollout for rollout in rollouts if rollout.interrupted]
    assert cut
    assert all(rollout.kv_marks[0].num_kept >= 32 for rollout in cut), (
        "the second leg did not hit its own blocks"
    )
    chosen_again = []
    for rollout in rollouts:
        first, last = firsts[rollout.index], rollout.routed_experts
        assert last is not None
        differs = (np.sort(first, axis=-1) != np.sort(last[: len(first)], axis=-1)).any(axis=(1, 2))
        assert not differs[: rollout.kv_marks[0].num_kept if rollout.kv_marks else None].any(), (
            "what was kept is as it was"
        )
        after = np.zeros(rollout.num_tokens, dtype=bool)
        after[: len(first) + 1 - PROMPT_TOKENS] = np.cumsum(differs)[PROMPT_TOKENS - 1 :] > 0
        assert after.sum() < 32, "more than a block"
        chosen_again.append(after[loss_mask(rollout)])
    return [
        TrainingSequence(
            prompt_token_ids=task.prompt_token_ids,
            token_ids=rollout.token_ids,
            generator_logprobs=rollout.logprobs,
            loss_mask=loss_mask(rollout),
            advantage=1.0,
            weight=1.0,
            routed_experts=rollout.routed_experts,
        )
        for rollout in rollouts
    ], np.concatenate(chosen_again)


def tie_experts(model: torch.nn.Module) -> None:
    """Make the scores of three experts each differ by a rounding: which two of them are chosen is
    anybody's guess.
    """
    reshard(model)
    for module in model.modules():
        if type(module).__name__.endswith("Router"):
            weight, *biases = module.parameters()
            assert isinstance(weight, DTensor)
            with torch.no_grad():
                for parameter in biases:
                    parameter.zero_()
                rows = weight.to_local()
                alike = rows[torch.arange(len(rows)) // 3 * 3]
                rows.copy_(
                    alike
                    * (
                        1
                        + 1e-7 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(0))
                    )
                )
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(buffer[torch.arange(len(buffer)) // 3 * 3])


def reshard(model: torch.nn.Module) -> None:
    """A forward pass alone leaves some weights gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


async def test_every_architecture_of_the_table_is_run_here() -> None:
    marks = [
        mark
        for test in globals().values()
        for mark in getattr(test, "pytestmark", ())
        if callable(test)
    ]
    run = {name for mark in marks if mark.args[:1] == ("architecture",) for name in mark.args[1]}
    assert {model.tiny_model for model in proven_models()} <= run
