"""Sentences about a plan that does not fit: the setting, the memory it needs, and the value with
which it would fit.

A remedy is found by counting again with other settings, the mildest first.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rollcast.config.services import DEFAULT_GPU_SHARE
from rollcast.memory import one_gpu
from rollcast.memory.device import GB, gigabytes
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.trainer import largest_in_words


def refusals(plan: MemoryPlan) -> list[str]:
    """One sentence for each role that cannot run; empty if all fit."""
    if plan.device.kind == "cpu":
        return list(_machine(plan))
    if plan.shares_gpu:
        return list(_one_gpu(plan))
    return [*_trainer(plan), *_generator(plan)]


def warnings(plan: MemoryPlan) -> list[str]:
    """One sentence if generators will run but preempt rollouts."""
    worker = plan.worker
    fit = worker.slots_that_fit
    if fit >= worker.slots or fit < 1:
        return []
    length = plan.config.model.max_length
    group = plan.config.recipe.most_rollouts_per_prompt
    configured_slots = plan.config.generator.slots or "null"
    sentence = (
        f"generator.slots = {configured_slots}: the KV cache holds {fit} rollouts of "
        f"model.max_length {length}, or "
        f"{worker.tokens_per_slot} tokens each if all slots are taken; it will preempt"
    )
    if fit >= group:
        return [f"{sentence}; set it to {fit}"]
    wider = next(
        (n for n in _worker_counts(plan) if _with_workers(plan, n).worker.slots_that_fit >= group),
        None,
    )
    remedy = (
        "shorten model.max_length" if wider is None else f"set generator.tensor_parallel to {wider}"
    )
    return [f"{sentence}, and the {group} rollouts of one prompt need as many slots; {remedy}"]


def check_shard_ranks(plan: MemoryPlan) -> list[str]:
    """One sentence if trainer.shard_ranks does not divide the ranks; else empty."""
    shards = plan.config.trainer.shard_ranks
    if shards is None or plan.ranks % shards == 0:
        return []
    return [
        f"trainer.shard_ranks = {shards}: it does not divide the {plan.ranks} trainer ranks; set "
        "it to the ranks of one machine, or to null"
    ]


def _trainer(plan: MemoryPlan) -> Iterator[str]:
    if _trainer_fits(plan):
        return
    fullest = plan.trainer[0].fullest
    need = fullest.total
    lack = (
        f"trainer rank 0 of {plan.ranks} needs {gigabytes(need)} "
        f"({largest_in_words(fullest.parts)}), and {plan.device.in_words}"
    )
    for setting, value, remedy, changes in _milder(plan):
        if _trainer_fits(plan.with_settings(trainer=changes)):
            yield f"{setting} = {value}: {lack}; {remedy}"
            return
    fully_sharded_plan = plan.with_settings(trainer={"shard_ranks": None})
    if (ranks := _ranks_that_fit(fully_sharded_plan)) is not None:
        also = (
            ""
            if plan.config.trainer.shard_ranks is None
            else ", and set trainer.shard_ranks to null"
        )
        yield f"model.path = {plan.config.model.path}: {lack}; train on {ranks} ranks{also}"
        return
    yield (
        f"model.path = {plan.config.model.path}: {lack}; no number of ranks makes it fit: give "
        f"GPUs of at least {math.ceil(need / GB)} GB, or a smaller model"
    )


def _trainer_fits(plan: MemoryPlan) -> bool:
    """Rank 0 has the largest part of every weight, so no other rank holds more."""
    return plan.trainer[0].fullest.total <= plan.device.num_bytes


def _milder(plan: MemoryPlan) -> Iterator[tuple[str, Any, str, dict[str, Any]]]:
    """Changes that cost time, not devices: setting, its value now, the remedy in words, and the
    changed settings.
    """
    trainer = plan.config.trainer
    longest = plan.trainer[0].load.longest
    recomputed = {"activation_checkpointing": True}
    if trainer.shard_ranks is not None:
        yield "trainer.shard_ranks", trainer.shard_ranks, "set it to null", {"shard_ranks": None}
    if trainer.activation_checkpointing is not True:
        present_setting = trainer.activation_checkpointing or "false"
        yield "trainer.activation_checkpointing", present_setting, "set it to true", recomputed
    if (tokens := trainer.tokens_per_micro_batch) > longest:
        remedy = f"set it to {longest}, the longest rollout"
        shorter = {"tokens_per_micro_batch": longest}
        yield "trainer.tokens_per_micro_batch", tokens, remedy, shorter
        remedy = f"{remedy}, and trainer.activation_checkpointing to true"
        yield "trainer.tokens_per_micro_batch", tokens, remedy, {**shorter, **recomputed}
    chunk = trainer.logits_chunk_tokens
    # Smaller chunks of the head save hardly any memory and cost time
    while (chunk := chunk // 2) >= 128:
        smaller = {"logits_chunk_tokens": chunk}
        yield (
            "trainer.logits_chunk_tokens",
            trainer.logits_chunk_tokens,
            f"set it to {chunk}",
            smaller,
        )


def _ranks_that_fit(plan: MemoryPlan) -> int | None:
    """The fewest ranks that fit with these settings; None if no number does."""

    def fits(ranks: int) -> bool:
        return _trainer_fits(plan.with_settings(ranks=ranks))

    bound = plan.ranks
    while not fits(
        bound
    ):  # doubled, because from some number on the padding of more ranks takes more than it saves
        bound *= 2
        # GPUs of the largest cluster that is considered
        if bound > 4_096:
            return None
    counts = range(bound // 2 + 1, bound + 1)
    return counts[bisect_left(counts, True, key=fits)]


def _generator(plan: MemoryPlan) -> Iterator[str]:
    if _generator_fits(plan):
        return
    worker = plan.worker
    generator = plan.config.generator
    device = plan.device
    share = f"generator.gpu_memory_utilization = {generator.gpu_memory_utilization:g}"
    kv_need = worker.kv_of_slot(plan.config.model.max_length)
    if plan.worker_total > device.num_bytes:
        lack = (
            f"a generator's worker takes {gigabytes(plan.worker_total - worker.staging)} and "
            f"stages a version of {gigabytes(worker.staging)} beside it, and {device.in_words}"
        )
    else:
        lack = (
            f"weights {gigabytes(worker.weights)} and activations {gigabytes(worker.activations)} "
            f"leave {gigabytes(worker.kv_bytes)} for KV cache, and one rollout of model.max_length "
            f"needs {gigabytes(kv_need)}"
        )
    if worker.place == "device" and _generator_fits(plan.with_settings(weights={"stage": "host"})):
        yield f"{share}: {lack}; set weights.stage to host"
        return
    for workers in _worker_counts(plan):
        changed = _with_workers(plan, workers)
        if not _generator_fits(changed):
            continue
        best = changed.config.generator
        if workers == generator.tensor_parallel:
            yield f"{share}: {lack}; set it to {best.gpu_memory_utilization:g}"
        else:
            yield (
                f"generator.tensor_parallel = {generator.tensor_parallel}: {lack}; set it to "
                f"{workers}, and "
                f"generator.gpu_memory_utilization to {best.gpu_memory_utilization:g}"
            )
        return
    needed_gb = (worker.weights + worker.activations + kv_need + worker.staging) / GB
    yield (
        f"model.path = {plan.config.model.path}: {lack}; no generator.tensor_parallel makes it "
        f"fit: give GPUs of at least {math.ceil(needed_gb)} GB, or a smaller model"
    )


def _generator_fits(plan: MemoryPlan) -> bool:
    return plan.worker_total <= plan.device.num_bytes and plan.worker.slots_that_fit >= 1


def _worker_counts(plan: MemoryPlan) -> Iterator[int]:
    """Tensor-parallel sizes from the given one on that the model's heads can be cut into."""
    heads = max(layer.attention.heads for layer in plan.model.layers)
    workers = plan.config.generator.tensor_parallel
    # GPUs of the largest engine that is considered
    while workers <= min(64, heads):
        if heads % workers == 0:
            yield workers
        workers *= 2


def _with_workers(plan: MemoryPlan, workers: int) -> MemoryPlan:
    """With the largest share of the GPU that leaves room for the staged version, at most the given
    share.
    """
    configured_share = plan.config.generator.gpu_memory_utilization
    room = math.floor(100 * (1 - plan.worker.staging / plan.device.num_bytes)) / 100
    share = min(configured_share, room) if room > 0 else configured_share
    return plan.with_settings(
        generator={"tensor_parallel": workers, "gpu_memory_utilization": share}
    )


def _one_gpu(plan: MemoryPlan) -> Iterator[str]:
    """The trainer and the generators on the same GPU."""
    if one_gpu.fits(plan):
        return
    share = plan.config.generator.gpu_memory_utilization
    lack = (
        f"one GPU has {gigabytes(plan.device.num_bytes)}; the trainer needs "
        f"{gigabytes(one_gpu.trainer(plan))}, each generator ({plan.generators}) at least "
        f"{gigabytes(one_gpu.least_of_each(plan))}, contexts and margin "
        f"{gigabytes(one_gpu.unplanned_bytes(plan))}"
    )
    counted = plan.with_settings(
        generator={"gpu_memory_utilization": DEFAULT_GPU_SHARE, "gpu_kv_cache_gib": None}
    )
    if share != DEFAULT_GPU_SHARE and one_gpu.fits(one_gpu.shared(counted)):
        yield (
            f"generator.gpu_memory_utilization = {share:g}: {lack}; leave it out, and it is counted"
        )
        return
    for setting, value, remedy, changes in _milder(counted):
        if one_gpu.fits(one_gpu.shared(counted.with_settings(trainer=changes))):
            yield f"{setting} = {value}: {lack}; {remedy}"
            return
    alone = replace(counted, generators=1)
    fewer = f"local.generators = {plan.generators}: {lack}; set it to 1"
    if plan.generators > 1 and one_gpu.fits(one_gpu.shared(alone)):
        yield fewer
        return
    for setting, value, remedy, changes in _milder(alone):
        if one_gpu.fits(one_gpu.shared(alone.with_settings(trainer=changes))):
            yield f"{fewer}, and as {setting} = {value}: {remedy}"
            return
    yield (
        f"model.path = {plan.config.model.path}: {lack}; use two GPUs, a larger one, or a smaller "
        "model"
    )


def _machine(plan: MemoryPlan) -> Iterator[str]:
    if plan.on_one_machine > plan.device.num_bytes:
        yield (
            f"model.path = {plan.config.model.path}: trainer ranks ({plan.ranks}) and generators "
            f"({plan.generators}) "
            f"need {gigabytes(plan.on_one_machine)}, and {plan.device.in_words}; lower "
            "trainer.tokens_per_micro_batch or generator.cpu_kv_cache_gib, or give a smaller model"
        )
