"""The run file is checked before an install: the rendered Job's command says what every reader of a
run file says.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.yaml_loader import load_yaml
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import CPU, of_kind, one, pod_of, render
from tests.chart.value_sets import VALUE_SETS
from tests.cli.command import refusal
from tests.config.wrong_run_files import RIGHT, WRONG, changed


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


def values(change: dict[str, Any]) -> dict[str, Any]:
    return CPU | {"config": changed(RIGHT, change)}


WIRED = (
    "recipe.learning_rate is not a setting; here it is",
    "actor_rollout_ref.actor.optim.lr is not a setting",
    "recipe holds a text",
    "recipe holds nothing",
    "redis holds a text",
    "http.tls holds true or false",
    "seed = 5000000000 is wrong",
    "recipe.optimizer.learning_rate = '1e-5x' is wrong",
    "recipe.loss does not go with",
    "tasks.environments.0.factory = 'agent.py' is wrong",
)
"""How the first sentence begins: of each reader of a run file, and of what a template may stumble
over."""


@pytest.mark.parametrize("beginning", WIRED)
def test_the_hook_says_what_the_commands_say(beginning: str, tmp_path: Path) -> None:
    """All the others: tests/config/test_wrong_run_files.py, and test_check_of_every_mistake.py."""
    entry = next(entry for entry in WRONG if entry["says"][0].startswith(beginning))
    objects = render(values(entry["change"]))
    (container,) = pod_of(objects, "check").spec["containers"]
    (file, *rest) = container["args"]
    given = tmp_path / "run.yaml"
    given.write_text(one(objects, "ConfigMap", "-check")["data"][Path(file).name])
    said = refusal(*container["command"][1:], str(given), *rest)
    assert [line.removeprefix(f"{given}: ") for line in said.splitlines()] == entry["says"]


def test_the_hook_runs_config_check_on_the_run_file_of_the_values() -> None:
    """With the same command and the same file every sentence follows of those of `config check`."""
    config = changed(
        RIGHT,
        {"tasks": {"evaluation": "every 5"}, "budget": {"steps": 5_000_000_000}, "seed": None},
    )
    objects = render(CPU | {"config": config})
    pod = pod_of(objects, "check")
    (container,) = pod.spec["containers"]
    assert container["command"] == ["rollcast", "config", "check"]
    assert container["args"] == ["/etc/rollcast/run.yaml", "--elsewhere"]
    (mount,) = [
        mount for mount in container["volumeMounts"] if mount["mountPath"] == "/etc/rollcast"
    ]
    (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == mount["name"]]
    (item,) = of_kind(objects, "ConfigMap", volume["configMap"]["name"])
    rendered = load_yaml(item["data"]["run.yaml"], "run.yaml")
    config |= {
        "model": {name: value for name, value in config["model"].items() if name != "path"}
    }  # the chart has its own
    for group, settings in config.items():
        if isinstance(settings, dict):
            assert settings.items() <= rendered[group].items(), group
        else:
            assert rendered[group] == settings


def test_the_job_fails_as_a_process_with_a_sentence(short_path: Path) -> None:
    """This once rendered, and the pods refused it after they had been created."""
    wrong = {"tasks": {"evaluation": {"rollouts_per_prompt": 512}}}
    with LocalCluster(render(values(wrong)), short_path) as cluster:
        pod = cluster.pod("check")
        assert pod.start("check").wait(60) == 2
        said = pod.log("check").read_text()
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert "run.yaml: tasks.evaluation.rollouts_per_prompt = 512" in said


def test_a_right_run_file_passes_and_what_was_not_looked_at_is_said(short_path: Path) -> None:
    with LocalCluster(render(CPU), short_path) as cluster:
        pod = cluster.pod("check")
        assert pod.start("check").wait(60) == 0, pod.log("check").read_text()
        assert (
            "not checked: model, data, verifiers, certificates, disk and devices"
            in pod.log("check").read_text()
        )


@pytest.mark.parametrize("name", VALUE_SETS)
def test_it_comes_before_everything_and_needs_nothing_of_it(name: str) -> None:
    objects = render(VALUE_SETS[name])
    made = {
        (item["kind"], item["metadata"]["name"]): item["metadata"]["annotations"]
        for item in objects
        if item["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-install,pre-upgrade"
        and not re.search(
            "-image|-pull-|-dry-run$", item["metadata"]["name"]
        )  # test_image_watch.py, test_dry_run.py
    }
    pod = pod_of(objects, "check")
    job = ("Job", pod.owner["metadata"]["name"])
    assert set(made) - {("NetworkPolicy", job[1])} == {
        job,
        ("ServiceAccount", job[1]),
        ("ConfigMap", job[1]),
    }
    assert all(int(notes["helm.sh/hook-weight"]) < 0 for item, notes in made.items() if item != job)
    assert all(
        "before-hook-creation" in notes["helm.sh/hook-delete-policy"] for notes in made.values()
    )
    assert all(
        "hook-failed" not in notes["helm.sh/hook-delete-policy"] for notes in made.values()
    ), "its log is wanted"
    assert pod.spec["serviceAccountName"] == job[1]
    assert [
        volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume
    ] == [job[1]]
    assert "secretKeyRef" not in str(pod.spec)
    assert one(objects, "ConfigMap", "-check")["data"]["run.yaml"] == _text(objects)
    assert pod.owner["spec"]["backoffLimit"] == 0
    assert pod.owner["spec"]["activeDeadlineSeconds"] < 300, "helm waits so long"


def _text(objects: list[dict[str, Any]]) -> str:
    (found,) = [
        item["data"]["run.yaml"]
        for item in objects
        if item["kind"] == "ConfigMap"
        and item["metadata"]["name"].endswith("-run")
        and "run.yaml" in item["data"]
    ]
    return str(found)
