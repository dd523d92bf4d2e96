"""Every profile for GPUs is balanced by prediction, and its pods have the time and the cores that
they need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chart.gpu_profiles import ON_GPUS, hook, one_role
from tests.chart.rendering import merged, profile

MAX_TRAINER_IDLE = 0.15
MAX_GENERATOR_IDLE = 0.40
"""A node is divided into whole GPUs: one trainer of eight may leave this much of seven
generators."""
CORES_PER_RANK = 4
CORES_BESIDE_WORKERS = 2
"""A generator's front end and its engine."""
GRADING_PROCESSES = 4
"""tasks.grading.processes of the profiles, which is the default."""


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_trainer_of_a_profile_hardly_waits(name: str, tmp_path: Path) -> None:
    done = hook(profile(name), tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    predicted = json.loads(done.stdout)["predicted"]
    values = profile(name)
    assert predicted["generators"] == values["generator"]["replicas"]
    assert predicted["trainer_idle"] < MAX_TRAINER_IDLE
    assert predicted["generator_idle"] < MAX_GENERATOR_IDLE
    assert predicted["preemption_share"] < 0.1


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_check_names_the_idle_share_of_both_sides_and_every_assumption(
    name: str, tmp_path: Path
) -> None:
    said = hook(profile(name), tmp_path).stdout
    assert "predicted idle: trainer " in said
    assumed = [line.split(": ")[1] for line in said.splitlines() if line.startswith("assumed: ")]
    assert assumed == [
        "lengths",
        "prompts",
        "groups without an advantage",
        "trainer",
        "generators",
        "KV cache",
        "weights",
        "checkpoints",
    ]


def test_a_profile_with_slots_by_the_worst_case_would_keep_the_trainer_waiting(
    tmp_path: Path,
) -> None:
    values = merged(
        profile("8xh100"), {"config": {"generator": {"slots": 17}}, "generator": {"replicas": 4}}
    )
    predicted = json.loads(hook(values, tmp_path, "--json").stdout)["predicted"]
    assert predicted["trainer_idle"] > 0.2


def test_a_grace_shorter_than_step_and_checkpoints_is_a_caution(tmp_path: Path) -> None:
    said = hook(
        merged(profile("moe"), {"trainer": {"terminationGracePeriodSeconds": 300}}), tmp_path
    ).stdout
    assert "caution: trainer.terminationGracePeriodSeconds = 300: a step of" in said


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_pod_asks_for_the_cores_of_its_processes(name: str) -> None:
    values = profile(name)
    assert cores(values, "trainer") >= CORES_PER_RANK * values["trainer"]["gpus"]
    assert (
        cores(values, "generator")
        >= CORES_BESIDE_WORKERS + values["generator"]["gpus"] + GRADING_PROCESSES
    )


def cores(values: dict[str, Any], role: str) -> int:
    return int(one_role(values, role)["requests"]["cpu"])
