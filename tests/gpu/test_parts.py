"""Parts of `python -m benchmarks.gpu` at tiny shapes on the CPU: what each may import, what it says
when it fails.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from requirements.closure import closure
from testkit.gpu import card, kernels, learner, models
from testkit.gpu.parts import PARTS
from tests.only_these import ROOT, hidden_modules, run_with_only

NEEDED = ("torch", "transformers", "pydantic", "protobuf", "structlog")
FOR_GROUPS = ("httpx", "starlette", "uvicorn", "xxhash")
WITH_GROUPS = ("staging", "group")
ALONE = [
    name for name, part in PARTS.items() if name not in WITH_GROUPS and not part.starts_processes
]
ONE_BY_ONE = """
import runpy
parts = sys.argv[1:]
for part in parts:
    sys.argv[1:] = [part, "--small"]
    runpy.run_module("testkit.gpu.parts", run_name="__main__")
"""
"""In one process, which imports torch once."""


def benchmark(
    *arguments: str, surroundings: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Run it, with these environment variables; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--small", *arguments],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        cwd=ROOT,
        env=os.environ | surroundings,
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == any("failed" in record["figures"] for record in records), done.stderr
    return records


def recorded_results() -> dict[str, bytes]:
    folder = ROOT / "benchmarks" / "results"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("names", "packages"),
    [(ALONE, NEEDED), (WITH_GROUPS, NEEDED + FOR_GROUPS)],
    ids=["alone", "with groups"],
)
def test_parts_need_one_device_and_few_packages(
    names: Sequence[str], packages: tuple[str, ...]
) -> None:
    installed = closure(packages)
    assert {"redis", "grpc", "vllm", "scipy"} <= hidden_modules(installed)
    done = run_with_only(installed, ONE_BY_ONE, *names, timeout=170, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    # Parts also report what they have so far.
    all_figures = [figures for figures in reported if "small" in figures]
    for name, figures in zip(names, all_figures, strict=True):
        assert "failed" not in figures, figures["failed"]
        assert figures["small"] is True, name
        assert figures["rows"], name
        assert all(figures.get("targets", {}).values()), name
        for value in (
            value for row in figures["rows"] for value in row.values() if isinstance(value, float)
        ):
            assert math.isfinite(value), name
            assert value >= 0, name


def test_a_part_is_one_line_with_its_machine_and_tiny_ones_are_no_results() -> None:
    before = recorded_results()
    (record,) = benchmark("head")
    assert record["benchmark"] == "gpu-head"
    assert record["machine"]["cores"] > 0
    assert record["figures"]["targets"]
    assert recorded_results() == before


def test_parts_that_take_too_long_or_die_are_told_and_the_others_go_on() -> None:
    slow = benchmark("head", "staging", "--part-minutes", "0.001")
    assert [record["figures"]["failed"] for record in slow] == [
        "head took longer than 0.001 minutes",
        "staging took longer than 0.001 minutes",
    ]
    dead = benchmark(
        "head", "staging", surroundings={"RANK": "0"}
    )  # of a launcher that said no more than that
    for name, record in zip(("head", "staging"), dead, strict=True):
        assert record["figures"]["failed"].startswith(
            f"{name} ended with exit code 1: ValueError: "
        )


def test_a_card_that_is_too_small_for_one_setting_says_so() -> None:
    def measure() -> dict[str, Any]:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 18.55 GiB. GPU 0 has a total capacity of 79 GiB."
        )

    told = card.or_why_not(measure)
    assert told == {"failed": "OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB"}
    assert card.or_why_not(lambda: {"seconds": 1.0}) == {"seconds": 1.0}


@pytest.mark.parametrize(
    ("shape", "parameters"), [("0.6b", 596_049_920), ("1.7b", 1_720_574_976), ("4b", 4_022_468_096)]
)
def test_the_shapes_are_the_published_ones(shape: str, parameters: int) -> None:
    model = models.random_model(shape, torch.device("meta"))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    body, head = models.matrix_weights(model.config)
    norms = sum(parameter.numel() for parameter in model.parameters() if parameter.ndim == 1)
    assert body + head + norms == parameters


def test_operations_are_those_that_torch_counts() -> None:
    """Of one sequence whose every token is predicted; torch counts the scores
    of later tokens too.
    """
    (sequence,) = learner.rollouts(models.SMALL, is_small=True)[:1]
    length = sequence.num_tokens
    model = models.random_model(models.SMALL, torch.device("cpu"))
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(length)[None]).logits.sum().backward()
    attention = models.attention_flops(model.config, length)
    _, head = models.matrix_weights(model.config)
    not_predicted = 6 * head * len(sequence.prompt_token_ids)
    expected = learner.step_flops(model.config, [sequence]) + attention + not_predicted
    assert counter.get_total_flops() == expected


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "products"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_21", "attention"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, ...>",
            kernels.REST,
        ),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "fused code"),
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "communication",
        ),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        (
            (
                "void at::native::multi_tensor_apply_kernel<..., "
                "at::native::FusedAdamMathFunctor<float, 4>>"
            ),
            "optimizer",
        ),
    ],
)
def test_kernels_are_told_apart_by_their_names(kernel: str, kind: str) -> None:
    assert kernels.find_kind(kernel) == kind


@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_a_module_that_measures(name: str) -> None:
    assert callable(import_module(f"testkit.gpu.{PARTS[name].module}").measure)
