"""The cluster test without a cluster: what it would do, against what the chart renders.

Its steps run with every command written down and none carried out. So names, values and labels are
held against the chart; test_cluster_steps.py has what they make of answers. What a cluster does is
seen on a cluster alone (`make cluster-proof`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from testkit.cluster.changes import REFUSED, UPGRADES, refused_object
from testkit.cluster.proof import Proof, prepare
from testkit.cluster.release import VALUES
from testkit.cluster.steps import STEPS, look
from testkit.cluster.surroundings import CLOSED, OPEN_TO_ITS_NAMESPACE
from tests.chart.kubernetes_schemas import NEWEST, check
from tests.chart.rendering import (
    CHART,
    Object,
    merged,
    of_kind,
    one,
    pod_of,
    pods,
    render,
    run_file,
)

ROOT = Path(__file__).parents[2]
SURROUNDINGS = {
    "PROMETHEUS": "monitoring/prometheus:9090",
    "GRAFANA": "monitoring/grafana:80",
    "SECOND_TAG": "again",
}
HELMS_ORDER = (
    "NetworkPolicy",
    "Secret",
    "ConfigMap",
    "Service",
    "Deployment",
    "StatefulSet",
    "Job",
    "CronJob",
    "Ingress",
)
"""In which Helm sends kinds to the API server (InstallOrder of its source), as far as it matters
here."""


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


def commands(step: str) -> list[list[str]]:
    recorded: list[list[str]] = []
    STEPS[step](prepare("somewhere", recorded))
    return recorded


def values_of(command: list[str]) -> Object:
    """What its -f, --set and --set-json say, as Helm reads them."""
    found: Object = {}
    for flag, text in itertools.pairwise(command):
        if flag == "-f":
            found = merged(found, yaml.safe_load(Path(text).read_text()))
        elif flag == "--set":
            for pair in text.split(","):
                path, _, value = pair.partition("=")
                found = merged(found, placed(path, yaml.safe_load(value)))
        elif flag == "--set-json":
            path, _, value = text.partition("=")
            found = merged(found, placed(path, json.loads(value)))
    return found


def placed(path: str, value: Any) -> Object:
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


INSTALLED = values_of([word for path in VALUES for word in ("-f", str(path))])


@pytest.mark.parametrize("step", STEPS)
def test_every_step_changes_its_own_namespaces_alone(step: str) -> None:
    for command in commands(step):
        assert command[0] in ("kubectl", "helm")
        assert command[1] == "-n"
        if command[2] == "monitoring":
            assert command[3] in ("get", "port-forward")
        else:
            assert command[2] in ("somewhere", "somewhere-2")


@pytest.mark.parametrize("step", STEPS)
def test_every_object_that_a_step_names_is_one_that_the_chart_makes(step: str) -> None:
    everything = {
        "autoscaler": {"mode": "keda"},
        "grader": {"enabled": True},
        "monitoring": {"enabled": True},
    }
    made = render(merged(INSTALLED, everything), name="proof")
    names = {item["metadata"]["name"] for item in made}
    claims = {
        f"{claim['metadata']['name']}-{item['metadata']['name']}-0"
        for item in of_kind(made, "StatefulSet")
        for claim in item["spec"].get("volumeClaimTemplates", [])
    }
    roles = {pod.role for pod in pods(made)}
    for command in commands(step):
        for word in command[4:]:
            if "proof-rollcast" in word and word not in claims and "=" not in word:
                named = re.sub(r"^(keda-hpa-|\w+/)", "", word)
                assert named in names, f"{word} of {command}"
            if "component=" in word:
                assert word.rpartition("component=")[2] in roles


def test_every_value_that_a_step_sets_is_one_that_the_chart_takes() -> None:
    """But those that are to be refused; what is set before stays, as with --reuse-values."""
    kept: dict[tuple[str, str], Object] = defaultdict(dict)
    refused = {pair for values in REFUSED.values() for pair in values.split(",")}
    for command in itertools.chain.from_iterable(commands(step) for step in STEPS):
        if command[0] != "helm" or command[3] not in ("install", "upgrade"):
            continue
        assert command[5] == str(CHART)
        if refused & set(command):
            continue
        release = (command[2], command[4])
        before = {} if command[3] == "install" else kept[release]
        given = merged(before, values_of(command))
        objects = render(given, name=release[1], namespace=release[0])
        parse_run_config(run_file(objects), source="run.yaml")
        kept[release] = {key: value for key, value in given.items() if key != "extraObjects"}


def _installs() -> Iterator[tuple[str, str, list[Object]]]:
    """Namespace, name and objects of every release that any step installs."""
    for command in itertools.chain.from_iterable(commands(step) for step in STEPS):
        if command[:1] + command[3:4] == ["helm", "install"]:
            yield (
                command[2],
                command[4],
                render(values_of(command), name=command[4], namespace=command[2]),
            )


def test_no_two_releases_that_are_installed_have_an_object_in_common() -> None:
    """Helm would refuse the second: it does not take what belongs to another release."""
    owners: dict[tuple[str, str, str], tuple[str, str]] = {}
    for namespace, name, objects in _installs():
        for item in objects:
            identity = (
                item["kind"],
                item["metadata"].get("namespace", ""),
                item["metadata"]["name"],
            )
            assert owners.setdefault(identity, (namespace, name)) == (namespace, name), identity
    assert set(owners.values()) == {
        ("somewhere", name) for name in ("proof", "beside", "queued", "refused", "pair")
    } | {("somewhere-2", "proof")}


def test_the_run_outlasts_the_proof_and_its_pods_fit_a_small_machine() -> None:
    objects = render(INSTALLED, name="proof")
    config = parse_run_config(run_file(objects), source="run.yaml")
    assert config.budget.steps is not None
    assert config.budget.steps >= 50_000, "three hours of four steps a second"
    asked = [container["resources"]["requests"]["memory"] for role in ("trainer", "generator",
        "redis", "forecaster")
             for container in pod_of(objects, role).spec["containers"]]  # fmt: skip
    assert sum(int(text[:-2]) * {"Gi": 1024, "Mi": 1}[text[-2:]] for text in asked) < 4096


def test_each_upgrade_replaces_the_pods_whose_templates_change() -> None:
    """In the order of the steps, each upon those before."""
    values = INSTALLED
    for name, change in UPGRADES.items():
        given = [
            word.replace("SECOND_TAG", "again")
            for value in change.values
            for word in ("--set", value)
        ]
        after = merged(values, values_of(given))
        before_objects, after_objects = (render(given, name="proof") for given in (values, after))
        changed = {
            role
            for role in ("trainer", "generator", "redis", "forecaster")
            if (pod_of(before_objects, role).metadata, pod_of(before_objects, role).spec)
            != (pod_of(after_objects, role).metadata, pod_of(after_objects, role).spec)
        }
        assert changed == change.replaces, name
        assert before_objects != after_objects, name
        assert set(change.brings) <= {pod.role for pod in pods(after_objects)}
        values = after


def test_what_must_be_refused_is_refused_by_the_check_or_while_it_is_rendered() -> None:
    """The claim: by templates/redis/validate.yaml, which looks at the cluster;
    tests/chart/test_redis.py.
    """
    wrong, immutable = REFUSED.values()
    with pytest.raises(UserError, match=r"recipe\.prompts_per_step"):
        parse_run_config(
            run_file(render(merged(INSTALLED, values_of(["--set", wrong])))), source="run.yaml"
        )
    before, after = (
        [
            item
            for item in render(values)
            if item["kind"] == "StatefulSet" and item["metadata"]["name"].endswith("-redis")
        ]
        for values in (INSTALLED, merged(INSTALLED, values_of(["--set", immutable])))
    )
    assert before[0]["spec"]["volumeClaimTemplates"] != after[0]["spec"]["volumeClaimTemplates"]


def test_the_upgrade_that_fails_half_way_does_so_after_the_trainers_job_was_made() -> None:
    """Helm sends the object, since its schema is right, and after the Job; no API server takes such
    a schedule.
    """
    given = merged(INSTALLED, {"extraObjects": [refused_object(prepare("somewhere", []))]})
    refused = one(render(given, name="proof"), "CronJob")
    check(refused, NEWEST)
    assert HELMS_ORDER.index(refused["kind"]) > HELMS_ORDER.index("Job")
    schedule = refused["spec"]["schedule"]
    assert len(schedule.split()) != 5
    assert not schedule.startswith("@")


def test_the_places_that_policies_must_close_are_served() -> None:
    objects = render(merged(INSTALLED, {"grader": {"enabled": True}}), name="proof")
    served = {
        f"{service['metadata']['name'].removeprefix('proof-rollcast-')}:{port['port']}"
        for service in of_kind(objects, "Service")
        for port in service["spec"]["ports"]
        if "-test-" not in service["metadata"]["name"]
    }
    assert set(CLOSED) | set(OPEN_TO_ITS_NAMESPACE) == served


def test_a_step_that_a_cluster_cannot_show_is_not_seen_rather_than_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SURROUNDINGS:
        monkeypatch.delenv(name)
    proof: Proof = prepare("somewhere", [])
    assert look(proof, "the dashboards' queries") == {
        "verdict": "not seen",
        "seconds": 0,
        "note": "PROMETHEUS names no service, as namespace/name:port",
    }
    lacking = {step for step in STEPS if look(proof, step)["verdict"] == "not seen"}
    assert lacking == {
        "the dashboards' queries",
        "Grafana",
        "upgrade: another image of the trainer",
        "upgrade: another image of the generators",
    }
    monkeypatch.setattr(proof.cluster, "has", lambda kind: False)
    assert {step for step in STEPS if look(proof, step)["verdict"] == "not seen"} - lacking == {
        "scaling with KEDA",
        "JobSet",
        "Kueue",
    }


def test_the_documented_steps_are_steps() -> None:
    text = (ROOT / "docs" / "releases.md").read_text()
    (given,) = re.findall(r"benchmarks\.cluster --only ([^`]*)`", text)
    assert set(shlex.split(given)) <= set(STEPS)
    for target in re.findall(r"^    make ([a-z-]+)$", text, re.MULTILINE):
        assert f"\n{target}: " in (ROOT / "Makefile").read_text()


def test_the_table_has_a_row_for_every_step_and_the_documents_agree_with_it() -> None:
    text = (ROOT / "docs" / "releases.md").read_text()
    table = text.partition("### What was seen")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (seen|not seen) \|([^|]*)\|$", table, re.MULTILINE)
    assert [step for step, _, _ in rows] == list(STEPS)
    seen = [step for step, verdict, _ in rows if verdict == "seen"]
    assert seen, "else the sentences below are wrong"
    for page in ("README.md", "docs/kubernetes.md"):
        said = " ".join((ROOT / page).read_text().split())
        assert re.search(r"an earlier version .{0,80}API server", said), page
        assert "releases.md#what-was-seen" in said, page
        assert not re.search(r"[Nn]o cluster has run|has not met a real cluster", said), page


def test_it_needs_no_more_than_the_small_package() -> None:
    """Neither torch nor an engine: a hosted machine's disk is full of images."""
    program = "import sys, benchmarks.cluster.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert not modules & {
        "torch",
        "vllm",
        "transformers",
        "redis",
        "pytest",
        "grafana_foundation_sdk",
        "kubernetes",
    }


def test_without_a_cluster_it_says_so_in_a_sentence(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).write_text("#!/bin/sh\necho 'connection refused' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster"],
        env=os.environ
        | {"PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("no cluster answers: point KUBECONFIG at one (")
    assert done.stderr.count("\n") == 1
