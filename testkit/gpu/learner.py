"""Optimizer steps of the learner on made-up rollouts, once for each way to compute a layer
(VARIANTS).

A shape's part with -compiled makes the same steps with compiled layers. Each row has the errors of
two short sequences before the first step, against plain Transformers in float32 on the same device:
a compiled row and the one without the compiler decide `trainer.compile: auto`
(`documents.compilation`). It names the attention kernel that ran, the share of padding, the peak of
memory next to the plan's for the fullest moment of a step, and the seconds of the card's kernels in
one more step, by kind of work: that shows the time that can still be gained.

MFU: floating-point operations that the model asks for, of tokens without padding and of nothing
twice, over what the card's data sheet promises in the time. The head works for loss tokens alone.
"""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rollcast.config.recipe import Recipe
from rollcast.config.services import AttentionKernel, Recomputation, Trainer
from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    denominator,
    packed_tokens,
    padded_tokens,
    plan_micro_batches,
)
from rollcast.trainer.learner.device_batch import pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.layers import COMPILER
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.ranks import Ranks
from testkit.gpu import card, exactness, models
from testkit.gpu.kernels import seconds_by_kind
from testkit.gpu.parts import report
from testkit.gpu.planned import planned_bytes


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a layer, as the trainer's settings name it."""

    recompute: Recomputation = False
    """trainer.activation_checkpointing"""
    compiled: bool = False
    packing: bool = False
    attention: AttentionKernel = "auto"


VARIANTS = {
    "plain": Variant(),
    "recomputed": Variant(recompute=True),
    "selective": Variant(recompute="selective"),
    "packed": Variant(packing=True),
    "cudnn": Variant(attention="cudnn"),
    "compiled": Variant(compiled=True),
    "compiled, packed": Variant(compiled=True, packing=True),
    "compiled, recomputed": Variant(recompute=True, compiled=True),
    "compiled, selective": Variant(recompute="selective", compiled=True),
    "compiled, selective, packed": Variant(recompute="selective", compiled=True, packing=True),
}
FOR_EACH_PART = {
    "learner-0.6b": ("plain", "compiled", "selective", "compiled, selective"),
    "learner-1.7b": ("plain", "recomputed", "selective", "packed", "cudnn", "compiled, packed"),
    "learner-4b": ("recomputed", "selective"),
    "learner-4b-compiled": ("compiled, recomputed", "compiled, selective"),
}
"""One step of 4b at 16k tokens takes ten seconds, and without recomputation it exceeds 139 GiB.
Selective recomputation needs 107 GiB by the plan: a card of 80 GiB says that it does not fit, and
shows full recomputation alone. 0.6b shows in little time whether the learner runs at all, and what
a compiler gains."""
USUAL = (32, 256, 1_500, 8_192)
SIZES = {"4b": (8, 256, 9_000, 16_128)}
"""Rollouts, prompt tokens, median and most completion tokens, by shape: at 16k tokens one rollout
is a micro-batch."""


def rollouts(shape: str, *, is_small: bool, seed: int = 0) -> list[TrainingSequence]:
    """Prompts of equal length, completions of log-normal lengths, half of them right."""
    rng = np.random.default_rng(seed)
    count, prompt, median, longest = (6, 8, 16, 48) if is_small else SIZES.get(shape, USUAL)
    vocab = models.qwen3(shape).vocab_size
    sequences = []
    for index in range(count):
        length = min(int(rng.lognormal(np.log(median), 0.6)) + 1, longest)
        advantage = 1.0 if index % 2 else -1.0
        sequence = models.random_sequence(rng, vocab, prompt, length, advantage, 1.0 / length)
        logprobs = rng.normal(-np.log(vocab), 0.5, length).astype(np.float32)
        sequences.append(replace(sequence, generator_logprobs=logprobs))
    return sequences


def step_flops(config: Any, sequences: Sequence[TrainingSequence]) -> float:
    """Forward and backward of one step, the optimizer left out."""
    body, head = models.matrix_weights(config)
    tokens = sum(sequence.num_tokens for sequence in sequences)
    loss_tokens = sum(int(sequence.loss_mask.sum()) for sequence in sequences)
    attention = sum(models.attention_flops(config, sequence.num_tokens) for sequence in sequences)
    return 6.0 * (body * tokens + head * loss_tokens) + attention


def measure(
    name: str, ranks: Ranks, *, is_small: bool, variants: Sequence[str] | None = None
) -> dict[str, Any]:
    """`name`: learner-SHAPE or learner-SHAPE-compiled.

    `variants`: of VARIANTS; None = those of this part.
    """
    shape = models.SMALL if is_small else name.split("-")[1]
    compiler = "eager" if is_small else COMPILER
    chosen = FOR_EACH_PART.get(name, tuple(VARIANTS)) if variants is None else variants
    sequences = rollouts(shape, is_small=is_small)
    ceiling = card.product_flops(ranks.device, side=64 if is_small else card.PRODUCT_SIDE)
    accept_older_torch()
    rows: list[dict[str, Any]] = []
    for variant in chosen:
        row = card.or_why_not(partial(steps, shape, sequences, ranks, VARIANTS[variant], compiler))
        rows.append({"variant": variant, **row})
        # These rows are kept if a later variant takes too long.
        report({"shape": shape, "rows": rows})
    return {
        "shape": shape,
        "longest_sequence": max(sequence.num_tokens for sequence in sequences),
        "tokens_per_micro_batch": Trainer().tokens_per_micro_batch,
        "product_tflops": round(ceiling / 1e12, 3),
        "rows": rows,
        "targets": {"every variant that fits ran": all(map(ran_or_did_not_fit, rows))},
    }


def ran_or_did_not_fit(row: Mapping[str, Any]) -> bool:
    failure = str(row.get("failed", ""))
    return not failure or failure.startswith(torch.OutOfMemoryError.__name__)


VARLEN = "varlen_attn"


def accept_older_torch() -> None:
    """Before torch 2.12 `varlen_attn` has no `enable_gqa`, and takes fewer key heads without it."""
    from torch.nn.attention import varlen  # imports torch's compiler, seconds of every other part

    older: Any = getattr(varlen, VARLEN)
    if "enable_gqa" in inspect.signature(older).parameters:
        return

    def without_flag(*arguments: Any, enable_gqa: bool, **named: Any) -> Any:
        return older(*arguments, **named)

    setattr(varlen, VARLEN, without_flag)


def steps(
    shape: str, sequences: Sequence[TrainingSequence], ranks: Ranks, variant: Variant, compiler: str
) -> dict[str, Any]:
    """`compiler`: torch.compile's backend, if the variant is compiled.

    Raises torch.OutOfMemoryError.
    """
    recipe, bytes_before = Recipe(), card.start_counting_memory(ranks.device)
    model = models.random_model(shape, ranks.device)
    short = exactness.sequences(shape, is_small=shape == models.SMALL)
    expected = exactness.plain(model, short)
    model.zero_grad()
    policy = models.shard_model(
        model,
        ranks,
        dtype=torch.bfloat16,
        recompute=variant.recompute,
        compiler=compiler if variant.compiled else None,
        packing=variant.packing,
    )
    started = time.perf_counter()
    make_batch = pack_micro_batch if variant.packing else pad_micro_batch
    errors = exactness.errors_of(policy, make_batch(tuple(short), ranks.device), expected)
    policy.zero_grad()
    del expected
    card.start_counting_memory(ranks.device)
    learner = Learner(
        policy,
        optimizer_settings=recipe.optimizer,
        loss=make_loss(recipe.loss),
        ranks=ranks,
        attention=variant.attention,
        packing=variant.packing,
    )
    (micro_batches,) = plan_micro_batches(
        sequences,
        world_size=1,
        max_tokens=Trainer().tokens_per_micro_batch,
        packing=variant.packing,
    )
    computed_tokens = sum(map(packed_tokens if variant.packing else padded_tokens, micro_batches))
    learner.update(micro_batches, denominator(sequences))
    # The short sequences included; all code is compiled by now
    first_seconds = time.perf_counter() - started
    stats = [learner.update(micro_batches, denominator(sequences)) for _ in range(3)]
    seconds = statistics.median(step_stats.seconds for step_stats in stats)
    flops = step_flops(models.qwen3(shape), sequences) / seconds
    peak = card.peak_flops(ranks.device)
    longest = max(sequence.num_tokens for sequence in sequences)
    planned = planned_bytes(shape, longest, recompute=variant.recompute)
    return {
        "parameters": sum(weight.numel() for weight in learner.weights),
        **errors,
        "first_seconds": round(first_seconds, 2),
        "step_seconds_median": round(seconds, 4),
        "step_seconds_worst": round(max(update_stats.seconds for update_stats in stats), 4),
        "tokens": stats[0].tokens,
        "loss_tokens": stats[0].loss_tokens,
        "attention_kernel": learner.attention_kernel,
        "padding_ratio": round(1 - stats[0].tokens / computed_tokens, 4),
        "micro_batches": stats[0].micro_batches,
        "tokens_per_second": round(stats[0].tokens / seconds, 1),
        "tflops": round(flops / 1e12, 6),
        "mfu": None if peak is None else round(flops / peak, 4),
        "peak_memory_gib": card.peak_memory_gib(ranks.device, bytes_before),
        "planned_memory_gib": round(planned / 2**30, 2),
        "all_applied": all(learner_stats.applied for learner_stats in stats),
        "kernel_seconds": seconds_by_kind(
            lambda: learner.update(micro_batches, denominator(sequences)), ranks.device
        ),
    }
