"""`helm upgrade --reuse-values` from a release of an earlier chart, whose defaults take the place
of this chart's.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.added_values import added, read, text
from tests.chart.earlier_charts import earlier_defaults, upgraded, without_secrets
from tests.chart.rendering import CHART, CPU, ROOT, merged, notes, pods, render, run_file

NOW = read(CHART / "values.yaml")
FIRST = "e7548c0~1"
"""The oldest commit whose chart must be upgraded from."""


def test_an_upgrade_renders_what_an_install_would(tmp_path: Path) -> None:
    """From the first chart, with all that came since; test_every_earlier_chart.py has the others
    and more values.
    """
    reused = render({}, path=upgraded(earlier_defaults("1"), CPU, tmp_path))
    assert without_secrets(reused) == without_secrets(render(CPU))


def test_of_this_charts_own_values_nothing_is_added() -> None:
    limits = {"hooks": {"resources": {"limits": {"memory": None}}}}
    (check,) = [pod for pod in pods(render(merged(CPU, limits))) if pod.role == "check"]
    assert "memory" not in check.containers[0]["resources"].get("limits", {})


def test_the_notes_name_values_that_were_removed(tmp_path: Path) -> None:
    said = notes({}, path=upgraded(earlier_defaults("1"), CPU, tmp_path))
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
    assert (CHART / "files" / "added-values.yaml").read_text() == text(), (
        "run python helm/added_values.py"
    )
    assert added(
        {"a": 1, "b": {"c": 2, "d": 3}}, [{"a": 1, "b": {"c": 0}}, {"b": {"c": 1, "d": 4}}]
    ) == {
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
        pytest.skip(
            f"no git history back to {FIRST}: the defaults stored in helm/earlier-values are "
            "tested alone"
        )
    to_add = read(CHART / "files" / "added-values.yaml")["values"]
    for commit in (*listed.split(), FIRST):
        values = yaml.safe_load(git("show", f"{commit}:helm/rollcast/values.yaml") or "")
        if values.get("defaultsVersion") != NOW["defaultsVersion"]:
            values = merged(to_add, values)
        missing = keys(NOW) - keys(values)
        assert not missing, (
            f"{commit}: copy its values.yaml to helm/earlier-values and raise defaultsVersion"
        )


def git(*arguments: str) -> str | None:
    """What git prints; None if it is not there or does not know a commit."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def test_run_files_of_earlier_charts_are_read() -> None:
    assert run_file(render(merged(earlier_defaults("1"), CPU)))["run"] == CPU["config"]["run"]
