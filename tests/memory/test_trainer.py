"""How a rank's memory follows the settings; its size is held against torch in test_step.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollcast.memory.shards import count_rank_numbers
from rollcast.memory.staging import staged_by_generator, staged_by_trainer, staging_place
from rollcast.memory.trainer import RankMemory
from rollcast.weights.plan.manifest import PIECE_BYTES
from testkit.published_models import LLAMA4_SCOUT, QWEN3_8B, QWEN3_30B_A3B
from tests.memory.plans import plan_of

PARAMETERS = 8_190_735_360
"""Of Qwen3-8B."""


def parts(rank: RankMemory, moment: str = "checkpoint") -> dict[str, int]:
    (found,) = [one.parts for one in rank.moments() if one.name == moment]
    return found


def test_a_single_rank_holds_the_whole_in_float32_and_both_moments() -> None:
    (rank,) = plan_of(QWEN3_8B, ranks=1).trainer
    held = parts(rank)
    assert held["weights"] == 4 * PARAMETERS
    assert held["optimizer"] == 8 * PARAMETERS
    assert held["staging"] == 2 * PIECE_BYTES, "two versions wait in host memory"
    assert parts(rank, "head, backward")["gradients"] > 4 * PARAMETERS


def test_a_teacher_that_the_ranks_hold_is_counted_by_its_own_shape() -> None:
    plan = plan_of(QWEN3_8B, ranks=4)
    teacher = plan_of(QWEN3_30B_A3B, ranks=4).model
    without, held = (replace(plan, teacher=one).trainer[0] for one in (None, teacher))
    assert parts(held)["teacher"] == 2 * count_rank_numbers(teacher.weights(), 0, 4)
    assert held.fullest.total == without.fullest.total + parts(held)["teacher"]


def test_moments_of_all_ranks_are_those_of_the_model() -> None:
    ranks = plan_of(QWEN3_30B_A3B, ranks=24).trainer
    assert sum(parts(rank)["optimizer"] for rank in ranks) == 8 * ranks[0].model.num_parameters
    assert parts(ranks[23])["optimizer"] < parts(ranks[0])["optimizer"] / 20, (
        "128 experts are 6 to a rank, 22 times"
    )


def test_no_rank_holds_more_than_rank_0() -> None:
    ranks = plan_of(QWEN3_30B_A3B, ranks=24).trainer
    assert max(rank.fullest.total for rank in ranks) == ranks[0].fullest.total


def test_a_rank_with_padding_writes_a_checkpoint_from_one_more_copy_of_what_is_padded() -> None:
    """torch clones what lies in larger memory, and keeps the clones until the file is whole."""
    ranks = plan_of(QWEN3_30B_A3B, gpu=None, ranks=24).trainer
    first, last = ranks[0], ranks[21]
    assert (first.unpadded, first.fullest.parts["checkpoint"]) == (0, first.checkpoint)
    of_experts = 4 * 2 * 48 * 3 * 768 * 2048  # 2 of the 6 that others have
    assert (
        of_experts
        < last.unpadded
        < 4 * count_rank_numbers(last.model.weights(), last.rank, last.ranks)
    )
    assert parts(last)["checkpoint"] == last.checkpoint + last.unpadded
    assert last.fullest.name != "checkpoint", "a step is fuller"
    assert last.fullest.parts["checkpoint"] == last.checkpoint + last.unpadded, (
        "and it is written beside steps"
    )


def test_rows_move_to_padded_memory_one_weight_after_the_other_while_a_rank_starts() -> None:
    last = plan_of(QWEN3_8B, gpu=None, ranks=3).trainer[2]
    rows = 4 * count_rank_numbers(last.model.weights(), 2, 3)
    padded = 4 * count_rank_numbers(last.model.weights(), 0, 3)
    one = max(4 * count_rank_numbers([weight], 0, 3) for weight in last.model.weights())
    assert max(rows + one, padded) < last.start_on_host < padded + one


def test_experts_are_never_cut() -> None:
    sixteen, many = (
        plan_of(LLAMA4_SCOUT, ranks=16).trainer[0],
        plan_of(LLAMA4_SCOUT, ranks=64).trainer[0],
    )
    assert parts(many)["optimizer"] > 0.9 * parts(sixteen)["optimizer"]


def test_activations_are_recomputed_and_a_long_rollout_is_a_micro_batch_by_itself() -> None:
    lengths = {"max_prompt_tokens": 2048, "max_completion_tokens": 14_336}
    plan = plan_of(QWEN3_8B, recipe=lengths, trainer={"tokens_per_micro_batch": 4096})
    assert plan.trainer[0].load.tokens == 16_384
    assert plan.trainer[0].load.longest == 16_384
    recomputed = plan.with_settings(trainer={"activation_checkpointing": True})
    kept, again = (one.trainer[0].fullest.parts["activations"] for one in (plan, recomputed))
    assert kept > 10 * again


def test_selective_recomputation_lies_between_all_and_nothing() -> None:
    """In bfloat16 a layer of Qwen3-8B keeps its input, seven products and the output
    of attention.
    """
    lengths = {"max_prompt_tokens": 2048, "max_completion_tokens": 14_336}
    plan = plan_of(QWEN3_8B, recipe=lengths)
    kept, selected, again = (
        sum(plan.with_settings(trainer={"activation_checkpointing": mode}).trainer[0]._kept_bytes())
        for mode in (False, "selective", True)
    )
    numbers = 3 * 4096 + 2 * 4096 + 2 * 1024 + 2 * 12_288
    assert selected == 36 * 16_384 * (2 * numbers + 4 * 32)
    assert again < selected < 0.5 * kept


def test_replicas_hold_what_fewer_ranks_would() -> None:
    replicated = plan_of(QWEN3_8B, ranks=16, trainer={"shard_ranks": 8}).trainer
    eight = plan_of(QWEN3_8B, ranks=8).trainer
    totals = [rank.fullest.total for rank in replicated]
    assert totals == 2 * [rank.fullest.total for rank in eight]


def test_a_reference_policy_is_held_in_the_models_dtype() -> None:
    plan = plan_of(QWEN3_8B, ranks=1, recipe={"kl": {"coefficient": 0.001}})
    assert parts(plan.trainer[0])["reference"] == 2 * PARAMETERS
    assert "reference" not in parts(plan_of(QWEN3_8B, ranks=1).trainer[0])


def test_what_is_being_read_passes_through_host_memory_as_it_is_stored() -> None:
    """One after the other: the head and the embeddings are the largest."""
    table = 151_936 * 4096
    wide = QWEN3_8B | {"dtype": "float32"}
    assert plan_of(QWEN3_8B, ranks=8).trainer[0].start_on_host == 2 * table // 8
    assert plan_of(wide, ranks=8).trainer[0].start_on_host == 4 * table // 8
    on_cpu = [
        plan_of(model, gpu=None, ranks=8).trainer[0].start_on_host for model in (QWEN3_8B, wide)
    ]
    assert on_cpu == [4 * PARAMETERS // 8 + 2 * table // 8, 4 * PARAMETERS // 8]


def test_experts_are_stacked_where_the_weights_end() -> None:
    """Two products of six experts of a layer, beside what they are stacked of; on a GPU that is its
    memory.
    """
    (on_cpu, on_gpu) = (plan_of(QWEN3_30B_A3B, gpu=gpu, ranks=24).trainer[0] for gpu in (None, 80))
    beyond = on_cpu.start_on_host - parts(on_cpu)["weights"]
    assert beyond == 4 * 6 * (2 * 768 * 2048)
    assert on_gpu.start_on_host < beyond


def test_every_rank_stages_its_rows_twice_in_host_memory() -> None:
    """Which is the device where there is no GPU."""
    assert staged_by_trainer(1000, "cpu") == 1000
    assert staged_by_trainer(1 << 40, "gpu") == 2 * PIECE_BYTES
    ranks = plan_of(QWEN3_30B_A3B, gpu=None, ranks=24).trainer
    assert sum(parts(rank)["staging"] for rank in ranks) == 2 * 2 * ranks[0].model.num_parameters


def test_a_generator_stages_a_version_on_each_device_or_once_on_the_host() -> None:
    assert staged_by_generator(1000, "device", "gpu", workers=4) == 1000
    assert staged_by_generator(1000, "host", "gpu", workers=4) == 2 * PIECE_BYTES
    assert staged_by_generator(1000, "host", "cpu", workers=4) == 250, "one for the four of them"


@pytest.mark.parametrize(
    ("free", "place"),
    [([20, 20], "device"), ([20, 9], "host"), ([None, None], "host"), ([None], "device")],
)
def test_versions_wait_on_devices_that_all_keep_a_gigabyte(
    free: list[int | None], place: str
) -> None:
    room = [
        (None if gigabytes is None else gigabytes << 30, (9 << 30) // len(free))
        for gigabytes in free
    ]
    assert staging_place("auto", room) == place
    assert staging_place("device", room) == "device"
    assert staging_place("host", room) == "host"
