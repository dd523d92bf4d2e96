"""Every profile for GPUs fits the GPUs that it names: its own hook says so, with the command that
it runs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.memory.weight_shapes import WEIGHTS, find_model_shape, same_layers_together
from testkit.model_shapes import make_shape
from testkit.published_models import QWEN3_1_7B, QWEN3_8B, QWEN3_30B_A3B, QWEN3_32B
from tests.chart.gpu_profiles import LONG, ON_GPUS, check_fits, hook, one_role
from tests.chart.rendering import PROFILES, ROOT, merged, one, profile, render
from tests.cli.command import rollcast

RECIPES = ("scalerl", LONG, "scalerl-without-fp32-head", "minimax")
GUIDE = (ROOT / "docs" / "kubernetes.md").read_text()
SIZES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "1.7 B": ("8xh100", {"trainer": {"gpus": 1}}, QWEN3_1_7B),
    "8 B": ("8xh100", {}, QWEN3_8B),
    "8 B, the study's": ("scalerl-8b", {}, QWEN3_8B),
    "32 B": (
        "moe",
        {"config": {"trainer": {"tokens_per_micro_batch": 16_384}}, "trainer": {"nodes": 3}},
        QWEN3_32B,
    ),
    "30 B with 3 B active": ("moe", {}, QWEN3_30B_A3B),
}
"""Row of the guide's table -> profile, what the row changes of it, the model."""
PUBLISHED = {"Qwen/Qwen3-8B-Base": QWEN3_8B, "Qwen/Qwen3-30B-A3B-Base": QWEN3_30B_A3B}


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_profile_fits_its_gpus_without_a_caution(name: str, tmp_path: Path) -> None:
    done = hook(profile(name), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "whether the model fits the memory" not in done.stdout, "it was not counted"
    assert "caution" not in done.stdout


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_fits_after_the_studys_profile(recipe: str, tmp_path: Path) -> None:
    """Those that differ in what they hold; test_every_recipe_fits.py has the others."""
    check_fits(recipe, tmp_path)


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_numbers_of_a_profile_are_those_of_the_published_model(name: str) -> None:
    values = profile(name)
    path = values["config"]["model"]["path"]
    assert find_model_shape(values["model"]["configs"][path]) == make_shape(PUBLISHED[path])


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_gpu_that_is_too_small_is_refused_before_anything_is_created(
    name: str, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("role", ["trainer", "generator"])
def test_too_little_host_memory_is_refused_before_anything_is_created(
    role: str, tmp_path: Path
) -> None:
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
def test_what_is_not_known_is_not_counted_and_that_is_said(
    change: dict[str, Any], tmp_path: Path
) -> None:
    done = hook(merged(profile("8xh100"), change), tmp_path)
    assert done.returncode == 0
    assert "whether the model fits the memory" in done.stdout


def guides_sizes() -> dict[str, list[str]]:
    """Model -> the other cells of its row."""
    (section,) = re.findall(r"^## Sizes\n(.*?)^## ", GUIDE, re.MULTILINE | re.DOTALL)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    assert rows[0] == [
        "model",
        "GPUs of",
        "trainer GPUs",
        "rank 0 holds",
        "a generator's GPUs",
        "profile",
    ]
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_guide_gives_a_size_for_every_profile() -> None:
    sizes = guides_sizes()
    assert set(sizes) == {*SIZES, "0.6 M (demo)"}
    named = {
        cells[-1].partition(" ")[0].removeprefix("values-").removesuffix(".yaml")
        for cells in sizes.values()
    }
    assert named == set(PROFILES)


@pytest.mark.parametrize("model", SIZES)
def test_a_row_of_the_guides_sizes_is_what_the_planner_says(model: str, tmp_path: Path) -> None:
    """The command that the guide names, on the run file that the chart renders."""
    name, change, config = SIZES[model]
    gpu, trainer_gpus, rank_0, generator_gpus, where = guides_sizes()[model]
    assert where.startswith((name, f"values-{name}.yaml"))
    values = merged(profile(name), change)
    assert gpu == f"{values['gpu']['memoryGB']} GB"
    assert int(trainer_gpus) == values["trainer"]["nodes"] * values["trainer"]["gpus"]
    assert int(generator_gpus) == values["generator"]["gpus"]
    (tmp_path / "run.yaml").write_text(
        one(render(values), "ConfigMap", "demo-rollcast-run")["data"]["run.yaml"]
    )
    (tmp_path / "config.json").write_text(
        json.dumps(config | {WEIGHTS: same_layers_together(make_shape(config))})
    )
    files = ("--config", tmp_path / "run.yaml", "--model-config", tmp_path / "config.json")
    done = rollcast(
        "plan", "memory", *files, "--gpu", 80, "--trainer-ranks", trainer_gpus, "--json"
    )
    plan = json.loads(done.stdout)
    assert plan["refusals"] == []
    assert f"{plan['trainer'][0]['total'] / 1e9:.0f} GB" == rank_0
    waits_on_the_gpu = plan["generator"]["parts"]["staging"] >= plan["version"] / int(
        generator_gpus
    )
    assert waits_on_the_gpu is (plan["parameters"] < 9e9), "as the sentence above the table has it"
    settings = yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert settings["trainer"]["activation_checkpointing"] is True
    assert settings["trainer"]["tokens_per_micro_batch"] == (8_192 if "active" in model else 16_384)
