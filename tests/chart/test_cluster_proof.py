"""The cluster test without a cluster: what it would do, against what the chart renders.

Its steps run with every command written down and none carried out. So names, values and labels are held against the
chart; what a cluster does with them is seen on a cluster alone (`make cluster-proof`).
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from testkit.cluster.steps import BROKEN, STEPS, UPGRADES, Proof, look, prepare
from tests.chart.rendering import CHART, Object, merged, pods, profile, render, run_file

ROOT = Path(__file__).parents[2]


def commands(step: str, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    monkeypatch.setenv("PROMETHEUS", "monitoring/prometheus:9090")
    recorded: list[list[str]] = []
    STEPS[step](prepare("somewhere", recorded))
    return recorded


def values_of(command: list[str]) -> Object:
    """What its --set say, as Helm reads them."""
    found: Object = {}
    for flag, text in itertools.pairwise(command):
        if flag == "--set":
            for pair in text.split(","):
                path, _, value = pair.partition("=")
                *groups, key = path.split(".")
                place = found
                for group in groups:
                    place = place.setdefault(group, {})
                place[key] = yaml.safe_load(value)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_every_step_speaks_to_its_own_namespaces_alone(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands(step, monkeypatch):
        assert command[0] in ("kubectl", "helm")
        assert command[1] == "-n"
        assert command[2] in ("somewhere", "somewhere-2")


@pytest.mark.parametrize("step", STEPS)
def test_every_object_that_a_step_names_is_one_that_the_chart_makes(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = render(merged(profile("cpu"), {"autoscaler": {"mode": "keda"}}), name="proof")
    names = {item["metadata"]["name"] for item in made}
    roles = {pod.role for pod in pods(made)}
    for command in commands(step, monkeypatch):
        for word in command[4:]:
            if word.startswith("proof-rollcast"):
                assert word in names, f"{word} of {command}"
            if "component=" in word:
                assert word.rpartition("component=")[2] in roles


@pytest.mark.parametrize("step", STEPS)
def test_every_value_that_a_step_sets_is_one_that_the_chart_takes(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But those that are to be refused; what is set before stays, as with --reuse-values."""
    kept: Object = profile("cpu")
    for command in commands(step, monkeypatch):
        if command[0] != "helm" or command[3] not in ("install", "upgrade"):
            continue
        assert command[5] == str(CHART)
        given = merged(kept, values_of(command))
        if any(broken in command for value in BROKEN.values() for broken in value.split(",")):
            continue
        render(given, name="proof")
        kept = given


def test_what_must_be_refused_is_refused_by_the_check_before_an_install_or_by_kubernetes() -> None:
    wrong, immutable = BROKEN.values()
    with pytest.raises(UserError, match=r"recipe\.prompts_per_step"):
        parse_run_config(run_file(render(merged(profile("cpu"), values_of(["--set", wrong])))), source="run.yaml")
    before, after = (
        [item for item in render(values) if item["kind"] == "StatefulSet"]
        for values in (profile("cpu"), merged(profile("cpu"), values_of(["--set", immutable])))
    )
    assert before[0]["spec"]["volumeClaimTemplates"] != after[0]["spec"]["volumeClaimTemplates"]


def test_the_kinds_of_upgrade_are_those_whose_templates_are_tested() -> None:
    tested = (ROOT / "tests" / "chart" / "test_upgrades.py").read_text()
    for value, _ in UPGRADES.values():
        role, group = value.split(".")[:2]
        assert f'"{role}": {{"{group.partition("=")[0]}"' in tested


def test_a_step_that_a_cluster_cannot_show_is_not_seen_rather_than_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS", raising=False)
    proof: Proof = prepare("somewhere", [])
    assert look(proof, "the dashboards' queries") == {
        "verdict": "not seen",
        "seconds": 0,
        "note": "PROMETHEUS names no service, as namespace/name:port",
    }
    monkeypatch.setattr(proof.cluster, "has", lambda kind: False)
    assert look(proof, "scaling with KEDA")["verdict"] == "not seen"


def test_the_documented_steps_are_steps() -> None:
    text = (ROOT / "docs" / "releases.md").read_text()
    (given,) = re.findall(r"benchmarks\.cluster --only ([^`]*)`", text)
    assert set(shlex.split(given)) <= set(STEPS)
    for target in re.findall(r"^    make ([a-z-]+)$", text, re.MULTILINE):
        assert f"\n{target}: " in (ROOT / "Makefile").read_text()


def test_without_a_cluster_it_says_so_in_a_sentence(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).write_text("#!/bin/sh\necho 'connection refused' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster"],
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("no cluster answers: point KUBECONFIG at one (")
    assert done.stderr.count("\n") == 1
