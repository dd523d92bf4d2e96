"""`helm upgrade --reuse-values` from a release of an earlier chart, whose defaults take the place of this chart's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.added_values import added, earlier, read, text
from tests.chart.rendering import CHART, CPU, PROFILES, ROOT, Object, merged, notes, pods, profile, render, run_file

EARLIER: dict[str, Object] = {f"{number}": values for number, values in enumerate(earlier(), 1)}
NOW = read(CHART / "values.yaml")
FIRST = "e7548c0~1"
"""The oldest commit whose chart must be upgraded from."""


def upgraded(before: Object, user: Object, folder: Path) -> Path:
    """The chart as Helm renders it with --reuse-values: its defaults are the earlier ones and what the user had set."""
    copied = shutil.copytree(CHART, folder / "rollcast")
    (copied / "values.yaml").write_text(yaml.safe_dump(merged(before, user)))
    return copied


def without_versions(objects: list[Object]) -> list[Object]:
    """Without credentials, which are random where no cluster is asked."""
    return [item for item in objects if item["kind"] != "Secret"]


@pytest.mark.parametrize("name", ["", *PROFILES])
@pytest.mark.parametrize("before", EARLIER)
def test_an_upgrade_renders_what_an_install_would(before: str, name: str, tmp_path: Path) -> None:
    """No default has changed so far; else the earlier one stays, and this test says which."""
    reused = render({}, path=upgraded(EARLIER[before], profile(name), tmp_path))
    assert without_versions(reused) == without_versions(render(profile(name)))


@pytest.mark.parametrize(
    "change",
    [
        {"generator": {"replicas": 3}},
        {"autoscaler": {"mode": "keda", "maxReplicas": 6}},
        {"grader": {"enabled": True}},
        {"trainer": {"controller": "jobset", "suspend": True}},
        {"monitoring": {"enabled": True, "rules": {"enabled": True}, "dashboards": {"enabled": True}}},
        {"hooks": {"resources": {"limits": {"cpu": 1}}}},
    ],
    ids=lambda change: str(next(iter(change))),
)
@pytest.mark.parametrize("before", EARLIER)
def test_every_documented_upgrade_works_from_every_earlier_chart(before: str, change: Object, tmp_path: Path) -> None:
    reused = render(change, path=upgraded(EARLIER[before], CPU, tmp_path))
    assert without_versions(reused) == without_versions(render(merged(CPU, change)))


@pytest.mark.parametrize("before", EARLIER)
def test_what_a_user_took_away_stays_away(before: str, tmp_path: Path) -> None:
    """As OpenShift wants it: an id of null. Helm drops such a key, which is not one that came since."""
    values = merged(EARLIER[before], CPU)
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        del values["podSecurity"][key]
    for pod in pods(render({}, path=upgraded(values, {}, tmp_path))):
        if pod.role != "redis":
            assert "runAsUser" not in pod.spec["securityContext"]


def test_of_this_charts_own_values_nothing_is_added() -> None:
    limits = {"hooks": {"resources": {"limits": {"memory": None}}}}
    (check,) = [pod for pod in pods(render(merged(CPU, limits))) if pod.role == "check"]
    assert "memory" not in check.containers[0]["resources"].get("limits", {})


def test_the_notes_name_values_that_were_removed(tmp_path: Path) -> None:
    said = notes({}, path=upgraded(EARLIER["1"], CPU, tmp_path))
    assert "autoscaler.fallbackReplicas is not a value of this chart any more" in said
    said = notes(merged(CPU, {"autoscaler": {"mode": "keda", "fallbackReplicas": 4}}))
    assert "autoscaler.fallbackReplicas is not a value of this chart any more" in said
    assert "any more" not in notes(CPU)


def test_a_removed_setting_of_the_run_file_is_accepted_and_named() -> None:
    values = merged(CPU, {"config": {"weights": {"encoding": "changed", "bucket_bytes": 1 << 20}}})
    assert "config.weights.encoding is not a value of this chart any more" in notes(values)
    weights = run_file(render(values))["weights"]
    assert weights["bucket_bytes"] == 1 << 20
    assert "encoding" not in weights


def test_the_notes_name_tags_of_another_version() -> None:
    """A release that keeps its tag runs code that does not know the new chart's arguments."""
    said = notes(merged(CPU, {"trainer": {"image": {"tag": "0.1.0-cpu"}}}))
    assert "trainer.image.tag = 0.1.0-cpu, but this chart" in said
    for tag in ("", "mine", run_version() + "-cpu"):
        assert "but this chart" not in notes(merged(CPU, {"trainer": {"image": {"tag": tag}}}))


def run_version() -> str:
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"])


def test_what_was_added_since_is_listed() -> None:
    assert (CHART / "files" / "added-values.yaml").read_text() == text(), "run python helm/added_values.py"
    assert added({"a": 1, "b": {"c": 2, "d": 3}}, [{"a": 1, "b": {"c": 0}}, {"b": {"c": 1, "d": 4}}]) == {
        "a": 1,
        "b": {"d": 3},
    }


def keys(node: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(node, dict):
        return {path}
    return {path}.union(*(keys(value, (*path, str(name))) for name, value in node.items()))


def test_every_chart_of_the_history_can_be_upgraded() -> None:
    """Whatever a commit's defaults lack is added; those of the current number lack nothing."""
    listed = git("log", "--format=%H", f"{FIRST}..HEAD", "--", "helm/rollcast/values.yaml")
    if listed is None:
        pytest.skip(f"no git history back to {FIRST}: the defaults stored in helm/earlier-values are tested alone")
    to_add = read(CHART / "files" / "added-values.yaml")["values"]
    for commit in (*listed.split(), FIRST):
        values = yaml.safe_load(git("show", f"{commit}:helm/rollcast/values.yaml") or "")
        if values.get("defaultsVersion") != NOW["defaultsVersion"]:
            values = merged(to_add, values)
        missing = keys(NOW) - keys(values)
        assert not missing, f"{commit}: copy its values.yaml to helm/earlier-values and raise defaultsVersion"


def git(*arguments: str) -> str | None:
    """What git prints; None if it is not there or does not know a commit."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def test_run_files_of_earlier_charts_are_read() -> None:
    assert run_file(render(merged(EARLIER["1"], CPU)))["run"] == CPU["config"]["run"]
