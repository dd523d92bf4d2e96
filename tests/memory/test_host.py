"""Host memory of a run on GPUs, counted from what staging, checkpoints
and exports really allocate.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.memory.device import GB
from rollcast.memory.host import (
    HostLimits,
    generator_on_host,
    host_refusals,
    quantity,
    rank_on_host,
    trainer_machine,
)
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.sender.staging import StagingSlots
from testkit.published_models import QWEN3_8B, QWEN3_30B_A3B
from tests.memory.plans import plan_of

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
}
HOST_STAGED: dict[str, Any] = {
    "weights": {"stage": "host"},
    "generator": {"tensor_parallel": 2, "slots": 16},
}


@pytest.mark.parametrize("ranks", [1, 3])
def test_staging_is_what_the_slots_of_every_rank_allocate(ranks: int) -> None:
    plan = plan_of(SMALL, ranks=ranks)
    specs = tuple(TensorSpec(name, "bfloat16", shape) for name, shape in plan.model.weights())
    for rank in range(ranks):
        slots = StagingSlots(shard_buckets(plan_buckets(specs, 1 << 20), rank, ranks))
        allocated = sum(slots[slot].memory.numel() for slot in (0, 1))
        counted = rank_on_host(plan, rank)["staging"]
        assert counted <= allocated <= counted + 2 * len(specs) * 512, (
            "the buffers are aligned, and no more than that"
        )


def test_a_checkpoints_copies_are_master_weights_and_two_moments_once_over_all_ranks() -> None:
    plan = plan_of(QWEN3_8B, ranks=8)
    copies = sum(rank_on_host(plan, rank)["checkpoint"] for rank in range(8))
    assert copies == 12 * sum(math.prod(shape) for _, shape in plan.model.weights())


def test_the_first_machine_holds_what_an_export_gathers() -> None:
    plan = plan_of(QWEN3_8B, ranks=8)
    assert "export" in rank_on_host(plan, 0)
    assert "export" not in rank_on_host(plan, 1)
    machine = trainer_machine(plan, HostLimits(machine_ranks=4))
    assert machine["checkpoint"] == sum(rank_on_host(plan, rank)["checkpoint"] for rank in range(4))


def test_a_version_is_staged_once_for_all_workers_of_a_generator() -> None:
    assert generator_on_host(plan_of(QWEN3_30B_A3B, **HOST_STAGED))["staging"] == 2 * 30_532_122_624
    on_device = HOST_STAGED | {"weights": {"stage": "device"}}
    assert generator_on_host(plan_of(QWEN3_30B_A3B, **on_device))["staging"] == 0


@pytest.mark.parametrize("role", ["trainer", "generator"])
def test_what_is_too_little_is_refused_and_what_is_asked_for_suffices(role: str) -> None:
    plan = plan_of(QWEN3_30B_A3B, ranks=24, **HOST_STAGED)
    (said,) = host_refusals(plan, HostLimits(8, **{role: 30 * GB}))
    assert "\n" not in said
    assert said.startswith(
        f"host memory of a {'trainer machine' if role == 'trainer' else 'generator'} ("
    )
    found = re.search(r"needs? ([\d.]+) GB", said)
    assert found is not None
    enough = round((float(found[1]) + 0.1) * GB)
    assert not list(host_refusals(plan, HostLimits(8, **{role: enough})))
    assert list(host_refusals(plan, HostLimits(8, **{role: enough - GB})))


def test_one_machine_must_hold_all_processes() -> None:
    plan = plan_of(QWEN3_8B, ranks=4)
    need = sum(trainer_machine(plan, HostLimits(4)).values()) + sum(
        generator_on_host(plan).values()
    )
    assert not list(host_refusals(plan, HostLimits(4, machine=need)))
    (said,) = host_refusals(plan, HostLimits(4, machine=need - 1))
    assert said.endswith("free it, or lower local.trainer_ranks or local.generators")


def test_without_gpus_the_host_is_the_device() -> None:
    assert not list(host_refusals(plan_of(QWEN3_8B, gpu=None, cpu=4), HostLimits(8, 1, 1, 1)))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512Gi", 512 << 30),
        ("1.5Ti", 3 << 39),
        ("64G", 64 * GB),
        ("549755813888", 1 << 39),
        ("5.5e+11", 550 * GB),
    ],
)
def test_sizes_are_read_as_kubernetes_writes_them(text: str, size: int) -> None:
    assert quantity(text, "--trainer-memory") == size


@pytest.mark.parametrize("text", ["", "64GB", "a lot", "-1Gi"])
def test_what_is_no_size_is_one_sentence(text: str) -> None:
    with pytest.raises(
        UserError, match=r"^--trainer-memory = .* is not a size; give it as Kubernetes writes it"
    ):
        quantity(text, "--trainer-memory")


def test_each_further_generator_on_a_machine_without_gpus_takes_its_share_of_the_memory() -> None:
    plan = plan_of(QWEN3_8B, gpu=None, cpu=512, ranks=1)
    assert replace(plan, generators=3).on_one_machine == plan.on_one_machine + 2 * plan.worker_total
    assert plan.worker_total > 2 * 8 * 10**9, "the weights alone, in bfloat16"
