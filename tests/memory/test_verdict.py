"""Sentences name a setting, and with the value they ask for the run fits."""

from __future__ import annotations

import re

from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import refusals, warnings
from testkit.published_models import LLAMA4_SCOUT, QWEN3_8B, QWEN3_30B_A3B, QWEN3_32B
from tests.memory.plans import plan_of

RECOMPUTED = {"activation_checkpointing": True}
STAGED = {"gpu_memory_utilization": 0.78, "slots": 18}


def only(plan: MemoryPlan) -> str:
    (sentence,) = refusals(plan)
    return sentence


def test_eight_billion_on_eight_gpus_of_80_gb_fit() -> None:
    plan = plan_of(QWEN3_8B, ranks=8, trainer=RECOMPUTED, generator=STAGED)
    assert refusals(plan) == []
    assert warnings(plan) == []


def test_activations_that_do_not_fit_are_recomputed() -> None:
    said = only(plan_of(QWEN3_8B, ranks=8, generator=STAGED))
    assert re.match(
        (
            r"trainer\.activation_checkpointing = false: trainer rank 0 of 8 needs [\d.]+ GB "
            r"\(activations"
        ),
        said,
    )
    assert said.endswith("and a GPU has 80.0 GB; set it to true")


def test_a_micro_batch_that_does_not_fit_is_cut_to_the_longest_rollout() -> None:
    trainer = RECOMPUTED | {"tokens_per_micro_batch": 131_072}
    plan = plan_of(QWEN3_8B, ranks=8, trainer=trainer, generator=STAGED)
    assert re.fullmatch(
        r"trainer\.tokens_per_micro_batch = 131072: .* set it to 16384, the longest rollout",
        only(plan),
    )
    assert refusals(plan.with_settings(trainer={"tokens_per_micro_batch": 16_384})) == []


def test_too_few_ranks_are_told_how_many_would_do_and_one_less_would_not() -> None:
    plan = plan_of(QWEN3_8B, ranks=1, trainer=RECOMPUTED, generator=STAGED)
    found = re.search(r"train on (\d+) ranks$", only(plan))
    assert found is not None
    enough = int(found[1])
    assert refusals(plan.with_settings(ranks=enough)) == []
    assert refusals(plan.with_settings(ranks=enough - 1)) != []


def test_replicas_that_do_not_fit_become_one_copy() -> None:
    plan = plan_of(QWEN3_8B, ranks=16, trainer=RECOMPUTED | {"shard_ranks": 1}, generator=STAGED)
    assert re.match(
        r"trainer\.shard_ranks = 1: trainer rank 0 of 16 needs .*; set it to null$", only(plan)
    )
    assert refusals(plan.with_settings(trainer={"shard_ranks": None})) == []


def test_what_is_staged_takes_no_gpu_of_the_trainer() -> None:
    plan = plan_of(
        QWEN3_32B, ranks=16, trainer=RECOMPUTED, generator={"tensor_parallel": 4, "slots": 16}
    )
    assert refusals(plan) == []


def test_thirty_two_billion_on_24_gpus_and_pairs_that_generate_fit() -> None:
    plan = plan_of(QWEN3_32B, ranks=24, trainer=RECOMPUTED, generator={"tensor_parallel": 2})
    assert refusals(plan) == warnings(plan) == []


def test_scout_fits_16_gpus_of_180_gb_and_generates_on_two_of_them() -> None:
    plan = plan_of(
        LLAMA4_SCOUT, gpu=180, ranks=16, trainer=RECOMPUTED, generator={"tensor_parallel": 2}
    )
    assert refusals(plan) == warnings(plan) == []


def test_a_version_that_has_no_room_beside_the_engine_is_given_room() -> None:
    plan = plan_of(
        QWEN3_8B, ranks=8, trainer=RECOMPUTED, generator={"slots": 19}, weights={"stage": "device"}
    )
    said = only(plan)
    assert said == (
        "generator.gpu_memory_utilization = 0.9: a generator's worker takes 72.0 GB and stages a "
        "version of 16.4 GB beside it, and a GPU has 80.0 GB; set weights.stage to host"
    )
    assert refusals(plan.with_settings(weights={"stage": "host"})) == []


def test_weights_that_do_not_fit_are_shared_by_several_workers() -> None:
    plan = plan_of(QWEN3_30B_A3B, gpu=60, ranks=24, trainer=RECOMPUTED)
    said = refusals(plan)[-1]
    found = re.search(
        (
            r"^generator\.tensor_parallel = 1: .*; set it to (\d+), and "
            r"generator\.gpu_memory_utilization to ([\d.]+)$"
        ),
        said,
    )
    assert found is not None
    mended = plan.with_settings(
        generator={"tensor_parallel": int(found[1]), "gpu_memory_utilization": float(found[2])}
    )
    assert not any("generator" in sentence for sentence in refusals(mended))


def test_a_model_for_which_no_cut_does_is_refused() -> None:
    """Sixteen experts are cut over sixteen ranks at most."""
    said = only(
        plan_of(
            LLAMA4_SCOUT,
            ranks=16,
            trainer=RECOMPUTED,
            generator={"tensor_parallel": 8, "slots": 16},
        )
    )
    assert "no number of ranks makes it fit" in said
    generator = refusals(
        plan_of(LLAMA4_SCOUT, gpu=8, ranks=16, trainer=RECOMPUTED, generator={"tensor_parallel": 8})
    )
    assert "no generator.tensor_parallel makes it fit" in generator[-1]


def test_slots_beyond_the_kv_cache_preempt_and_as_many_as_fit_do_not() -> None:
    plan = plan_of(QWEN3_8B, ranks=8, generator={"gpu_memory_utilization": 0.78, "slots": 192})
    (said,) = warnings(plan)
    assert said == (
        "generator.slots = 192: the KV cache holds 18 rollouts of model.max_length 16384, or 1584 "
        "tokens each if all slots are taken; it will preempt; set it to 18"
    )
    assert warnings(plan.with_settings(generator={"slots": 18})) == []


def test_slots_that_do_not_hold_one_group_ask_for_more_workers() -> None:
    lengths = {"max_completion_tokens": 34_816}
    plan = plan_of(
        QWEN3_8B, ranks=16, model={"max_length": 36_864}, recipe=lengths, generator=STAGED
    )
    (said,) = warnings(plan)
    assert said.endswith(
        "the 16 rollouts of one prompt need as many slots; set generator.tensor_parallel to 2"
    )


def test_a_machine_without_gpus_holds_all_processes_together() -> None:
    small = plan_of(QWEN3_8B, gpu=None, cpu=24, ranks=2, model={"dtype": "float32"})
    assert re.match(
        (
            r"model\.path = m: trainer ranks \(2\) and generators \(1\) need [\d.]+ GB, and this "
            r"machine"
        ),
        only(small),
    )
    assert (
        refusals(plan_of(QWEN3_8B, gpu=None, cpu=4000, ranks=2, model={"dtype": "float32"})) == []
    )
