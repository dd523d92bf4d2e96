"""The run file is checked before an install: the rendered Job's command says what every reader of a run file says."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import CHART, one, pod_of, profile, render
from tests.chart.value_sets import VALUE_SETS
from tests.cli.command import refusal
from tests.config.wrong_run_files import NAMES, RIGHT, WRONG, changed

CPU = profile("cpu")


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


def values(change: dict[str, Any]) -> dict[str, Any]:
    return CPU | {"config": changed(RIGHT, change)}


LEFT_TO_USERS = {
    name: entry for name, entry in zip(NAMES, WRONG, strict=True) if not entry.get("set_by_the_chart", False)
}
"""The chart itself refuses a value for a setting that it sets (test_refusals.py)."""


@pytest.fixture(scope="module")
def hook_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with the hook's template and all that refuses values: half of the time for each of 200 run files."""
    alone = shutil.copytree(CHART, tmp_path_factory.mktemp("hook") / "rollcast")
    for template in [*alone.rglob("templates/**/*.yaml")]:
        if template.name not in ("check.yaml", "validate.yaml"):
            template.unlink()
    whole = render(CPU)
    assert len(render(CPU, path=alone)) > 2
    assert all(item in whole for item in render(CPU, path=alone))
    return alone


@pytest.mark.parametrize("entry", LEFT_TO_USERS.values(), ids=list(LEFT_TO_USERS))
def test_the_hook_says_what_the_commands_say(entry: dict[str, Any], hook_alone: Path, tmp_path: Path) -> None:
    objects = render(values(entry["change"]), path=hook_alone)
    (container,) = pod_of(objects, "check").spec["containers"]
    (file, *rest) = container["args"]
    given = tmp_path / "run.yaml"
    given.write_text(one(objects, "ConfigMap", "-check")["data"][Path(file).name])
    said = refusal(*container["command"][1:], str(given), *rest)
    assert [line.removeprefix(f"{given}: ") for line in said.splitlines()] == entry["says"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tasks": {"evaluation": {"rollouts_per_prompt": 512}}}, "tasks.evaluation.rollouts_per_prompt = 512"),
        (
            {"recipe": {"rollout_allocation": {"kind": "difficulty", "most": 4096}}},
            "recipe.rollout_allocation.most = 4096",
        ),
        (
            {"recipe": {"loss": {"kind": "reinforce"}}},
            "recipe.loss does not go with recipe.schedule.max_staleness = 8, the default:",
        ),
        ({"recipe": {"unique_prompts": 1}}, "recipe.unique_prompts = 1"),
    ],
)
def test_the_job_fails_as_a_process_with_a_sentence(wrong: dict[str, Any], named: str, short_path: Path) -> None:
    """These once rendered, and the pods refused them after they had been created."""
    with LocalCluster(render(values(wrong)), short_path) as cluster:
        pod = cluster.pod("check")
        assert pod.start("check").wait(60) == 2
        said = pod.log("check").read_text()
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert f"run.yaml: {named}" in said


def test_a_right_run_file_passes_and_what_was_not_looked_at_is_said(short_path: Path) -> None:
    with LocalCluster(render(CPU), short_path) as cluster:
        pod = cluster.pod("check")
        assert pod.start("check").wait(60) == 0, pod.log("check").read_text()
        assert "not checked: model, data, verifiers, certificates, disk and devices" in pod.log("check").read_text()


@pytest.mark.parametrize("name", VALUE_SETS)
def test_it_comes_before_everything_and_needs_nothing_of_it(name: str) -> None:
    objects = render(VALUE_SETS[name])
    made = {
        (item["kind"], item["metadata"]["name"]): item["metadata"]["annotations"]
        for item in objects
        if item["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-install,pre-upgrade"
        and "-image" not in item["metadata"]["name"]  # tests/chart/test_image_watch.py
    }
    pod = pod_of(objects, "check")
    job = ("Job", pod.owner["metadata"]["name"])
    assert set(made) - {("NetworkPolicy", job[1])} == {job, ("ServiceAccount", job[1]), ("ConfigMap", job[1])}
    assert all(int(notes["helm.sh/hook-weight"]) < 0 for item, notes in made.items() if item != job)
    assert all("before-hook-creation" in notes["helm.sh/hook-delete-policy"] for notes in made.values())
    assert all("hook-failed" not in notes["helm.sh/hook-delete-policy"] for notes in made.values()), "its log is wanted"
    assert pod.spec["serviceAccountName"] == job[1]
    assert [volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume] == [job[1]]
    assert "secretKeyRef" not in str(pod.spec)
    assert one(objects, "ConfigMap", "-check")["data"]["run.yaml"] == _text(objects)
    assert pod.owner["spec"]["backoffLimit"] == 0
    assert pod.owner["spec"]["activeDeadlineSeconds"] < 300, "helm waits so long"


def _text(objects: list[dict[str, Any]]) -> str:
    (found,) = [
        item["data"]["run.yaml"]
        for item in objects
        if item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("-run") and "run.yaml" in item["data"]
    ]
    return str(found)
