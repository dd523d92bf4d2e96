"""Every profile for GPUs fits the GPUs that it names: its own hook says so, with the command that it runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.memory.architecture import model_shape
from testkit.published_models import QWEN3_8B, QWEN3_30B_A3B
from tests.chart.rendering import PROFILES, ROOT, merged, one, pod_of, profile, render
from tests.cli.command import rollcast

ON_GPUS = [name for name in PROFILES if name != "cpu"]
RECIPES = sorted((ROOT / "helm" / "recipes").glob("*.yaml"))
LONG = "scalerl-32k"
PUBLISHED = {"Qwen/Qwen3-8B-Base": QWEN3_8B, "Qwen/Qwen3-30B-A3B-Base": QWEN3_30B_A3B}


def hook(values: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """What the hook's command answers; its files lie in `folder` instead."""
    objects = render(values)
    (container,) = pod_of(objects, "check").spec["containers"]
    for name, text in one(objects, "ConfigMap", "-check")["data"].items():
        (folder / name).write_text(text)
    command = [*container["command"][1:], *container["args"]]
    return rollcast(*(word.replace("/etc/rollcast", str(folder)) for word in command))


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_profile_fits_its_gpus_and_nothing_preempts(name: str, tmp_path: Path) -> None:
    done = hook(profile(name), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "whether the model fits the memory" not in done.stdout, "it was not counted"
    assert "caution" not in done.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_fits_after_the_studys_profile(recipe: Path, tmp_path: Path) -> None:
    values = merged(profile("scalerl-8b"), yaml.safe_load(recipe.read_text()))
    if recipe.stem == LONG:  # docs/kubernetes.md: 16 rollouts of 36,864 tokens are more than one GPU's KV cache holds
        done = hook(values, tmp_path)
        assert "caution: generator.slots = 18" in done.stdout
        assert "set generator.tensor_parallel to 2" in done.stdout
        values = merged(values, {"generator": {"gpus": 2}, "config": {"generator": {"slots": 16}}})
    done = hook(values, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "caution" not in done.stdout


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_numbers_of_a_profile_are_those_of_the_published_model(name: str) -> None:
    values = profile(name)
    path = values["config"]["model"]["path"]
    assert model_shape(values["model"]["configs"][path]) == model_shape(PUBLISHED[path])


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_gpu_that_is_too_small_is_refused_before_anything_is_created(name: str, tmp_path: Path) -> None:
    done = hook(merged(profile(name), {"gpu": {"memoryGB": 20}}), tmp_path)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert "trainer rank 0 of" in first
    assert "and a GPU has 20.0 GB" in first
    assert second.startswith("generator.")


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_profile_asks_for_the_host_memory_that_its_pods_need(name: str, tmp_path: Path) -> None:
    """What is requested, so that it holds on a full node; the limit is checked by the hook."""
    values = profile(name)
    requested = {
        role: {"resources": {"limits": {"memory": one_role(values, role)["requests"]["memory"]}}}
        for role in ("trainer", "generator")
    }
    done = hook(merged(values, requested), tmp_path)
    assert done.returncode == 0, done.stderr


def one_role(values: dict[str, Any], role: str) -> dict[str, Any]:
    resources: dict[str, Any] = merged(profile_defaults(), values)[role]["resources"]
    return resources


def profile_defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = yaml.safe_load((ROOT / "helm" / "rollcast" / "values.yaml").read_text())
    return defaults


@pytest.mark.parametrize("role", ["trainer", "generator"])
def test_too_little_host_memory_is_refused_before_anything_is_created(role: str, tmp_path: Path) -> None:
    memory = {"limits": {"memory": "48Gi"}, "requests": {"memory": "48Gi"}}
    small = {role: {"resources": memory, "sharedMemory": "1Gi"}}
    done = hook(merged(profile("moe"), small), tmp_path)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert f"({role}.resources.limits.memory) = 51.5 GB" in said


@pytest.mark.parametrize(
    "change",
    [{"gpu": {"memoryGB": 0}}, {"config": {"model": {"path": "nobody/mine"}}}],
    ids=["no size of the GPUs", "another model"],
)
def test_what_is_not_known_is_not_counted_and_that_is_said(change: dict[str, Any], tmp_path: Path) -> None:
    done = hook(merged(profile("8xh100"), change), tmp_path)
    assert done.returncode == 0
    assert "whether the model fits the memory" in done.stdout
