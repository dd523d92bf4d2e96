"""What the cluster test makes of a cluster's answers: each step, with a cluster that is right and with wrong ones."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testkit.cluster import tools, watching
from testkit.cluster.proof import Proof, prepare
from testkit.cluster.steps import look
from testkit.cluster.tools import Cluster, Refuted
from testkit.monitoring.excused import NOT_IN_A_LOCAL_RUN
from testkit.monitoring.grafana import DASHBOARDS, load

Object = dict[str, Any]
PAUSE_SECONDS = 200.0
"""Between two looks of a step that waits."""


def thing(kind: str, name: str, role: str = "", uid: str = "", **rest: Any) -> Object:
    labels = {"app.kubernetes.io/instance": "proof", "app.kubernetes.io/component": role}
    return {"kind": kind, "metadata": {"name": name, "uid": uid or name, "labels": labels}, **rest}


def pod(role: str, uid: str = "") -> Object:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    container = {"name": role, "image": f"rollcast/{role}:0.1.0"}
    return thing("Pod", f"{role}-0", role, uid, status=status, spec={"nodeName": "node", "containers": [container]})


def job(name: str, code: int | None = None) -> Object:
    """At work, or failed because the trainer ended with that code."""
    message = f"Container trainer for pod x/{name}-0 failed with exit code {code} matching FailJob rule at index 0"
    ended = [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}]
    return thing("Job", name, "trainer", status={} if code is None else {"conditions": ended})


class Clock:
    """Time that passes while a step waits, and what happens then, one after the other."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happens: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += PAUSE_SECONDS
        if self.happens:
            self.happens.pop(0)()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    passing = Clock()
    monkeypatch.setattr(tools, "time", passing)
    return passing


class StandIn(Cluster):
    """Answers as a cluster with one release at work does; a test says what it answers else."""

    def __init__(self, namespace: str = "somewhere") -> None:
        super().__init__(namespace)
        roles = ("trainer", "generator", "redis", "forecaster")
        self.there: dict[str, list[Object]] = {"pods": [pod(role) for role in roles], "jobs": [job("first")]}
        self.answers: dict[str, str | Callable[[str], str]] = {"version --template": "v4.2.0"}
        """Pattern of a command -> what it prints; the last that fits."""
        self.asked: list[str] = []
        self._steps = itertools.count(1)

    def run(self, command: list[str], seconds: float, given: str | None = None) -> str:
        text = shlex.join(command[3:])
        self.asked.append(text)
        for pattern, answer in reversed(self.answers.items()):
            if re.search(pattern, text):
                return answer(text) if callable(answer) else answer
        if command[3] == "exec":
            return f"rollcast_trainer_step {next(self._steps)}\n"
        listed = re.fullmatch(r"get (\S+) -l (\S+) -o json", text)
        if not listed:
            return "{}"
        wanted = dict(term.split("=") for term in listed[2].split(","))
        found = [item for kind in listed[1].split(",") for item in self.there.get(kind, [])]
        return json.dumps({"items": [item for item in found if wanted.items() <= item["metadata"]["labels"].items()]})


def proof_of(cluster: StandIn, there: StandIn | None = None) -> Proof:
    proof = prepare("somewhere")
    proof.cluster = cluster
    for release in (proof.release, proof.beside, proof.queued):
        release.cluster = cluster
    proof.elsewhere.cluster = there or StandIn("somewhere-2")
    return proof


def fails(text: str) -> str:
    raise Refuted(f"helm ended with 1: {text}")


def seen(step: str, cluster: StandIn, there: StandIn | None = None) -> Object:
    return look(proof_of(cluster, there), step)


def test_a_helm_test_whose_logs_are_not_found_fails() -> None:
    cluster = StandIn()
    cluster.answers["^test proof --logs"] = "POD LOGS: ...\ntwo ranks added up over the headless Service"
    assert seen("helm test", cluster)["verdict"] == "seen"
    cluster.answers["^test proof --logs"] = ""
    assert seen("helm test", cluster)["verdict"] == "FAILED"


@pytest.mark.parametrize(
    ("replaced", "verdict"),
    [(("trainer", "forecaster"), "seen"), (("trainer", "forecaster", "generator"), "FAILED"), (("trainer",), "FAILED")],
)
def test_an_upgrade_must_replace_what_reads_it_and_nothing_else(replaced: tuple[str, ...], verdict: str) -> None:
    cluster = StandIn()

    def upgraded(text: str) -> str:
        kept = [item for item in cluster.there["pods"] if item["metadata"]["uid"].removesuffix("-0") not in replaced]
        cluster.there["pods"] = kept + [pod(role, "another") for role in replaced]
        return ""

    cluster.answers["^upgrade"] = upgraded
    assert seen("upgrade: another budget", cluster)["verdict"] == verdict


def _failing(cluster: StandIn, clock: Clock, code: int, is_half_way: bool = True) -> None:
    """Upgrades as Helm carries them out: one that ends half-way forgets the new Job, the next deletes the former."""

    def broken(text: str) -> str:
        if is_half_way:
            cluster.there["jobs"].append(job("second"))
            clock.happens = [lambda: cluster.there.update(jobs=[job("first", code), job("second")])]
        return fails("CronJob is invalid: spec.schedule")

    def mended(text: str) -> str:
        cluster.there["jobs"] = [job("second"), job("third")]
        clock.happens = [lambda: cluster.there.update(jobs=[job("second", code), job("third")])]
        return ""

    cluster.answers |= {"^upgrade": mended, "prompts_per_step=-1|persistence.size": fails, "extraObjects": broken}


@pytest.mark.parametrize(
    ("code", "is_half_way", "verdict", "sentence"),
    [
        (76, True, "seen", "the former trainer left with 76, then the one that Helm had forgotten"),
        (1, True, "FAILED", "the former trainer has left with 76: not within"),
        (76, False, "FAILED", "did not fail half-way"),
    ],
)
def test_after_an_upgrade_that_fails_half_way_one_trainer_is_left(
    code: int, is_half_way: bool, verdict: str, sentence: str, clock: Clock
) -> None:
    cluster = StandIn()
    _failing(cluster, clock, code, is_half_way)
    row = seen("an upgrade that fails", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


def test_two_trainers_that_stay_are_a_failure(clock: Clock) -> None:
    cluster = StandIn()
    _failing(cluster, clock, 76)
    cluster.there["pods"].append(pod("trainer", "a second"))
    assert "one trainer: not within" in seen("an upgrade that fails", cluster)["note"]


def test_what_cannot_be_asked_for_yet_is_waited_for_and_named_in_the_end(clock: Clock) -> None:
    cluster = StandIn()
    cluster.answers["^get deployment"] = fails
    clock.happens = [lambda: cluster.answers.update({"^get deployment": '{"spec": {"replicas": 2}}'})]
    release = proof_of(cluster).release
    cluster.until("more", 600.0, lambda: release.generators_asked_for() > 1)
    cluster.answers["^get deployment"] = fails
    with pytest.raises(Refuted, match=r"more: not within 600 s \(helm ended with 1"):
        cluster.until("more", 600.0, lambda: release.generators_asked_for() > 1)


def _scaled(cluster: StandIn, replicas: Iterator[int], reason: str = "GeneratorsRaised") -> None:
    last = 1

    def deployment(text: str) -> str:
        nonlocal last
        last = next(replicas, last)
        return json.dumps({"spec": {"replicas": last}})

    active = {"status": {"conditions": [{"type": "ScalingActive", "status": "True"}]}}
    cluster.there["pods"].append(pod("autoscaler"))

    def away(text: str) -> str:
        cluster.there["pods"] = [
            item for item in cluster.there["pods"] if not item["metadata"]["name"].startswith("auto")
        ]
        return ""

    def back(text: str) -> str:
        cluster.there["pods"].append(pod("autoscaler", "back"))
        return ""

    cluster.answers |= {
        "^get hpa": json.dumps(active),
        "^get deployment": deployment,
        "^get events": json.dumps({"items": [{"reason": reason}]}),
        "--replicas=0": away,
        "--replicas=1": back,
    }


@pytest.mark.parametrize(
    ("replicas", "reason", "verdict", "sentence"),
    [
        ((1, 2, 2, 2, 1), "GeneratorsRaised", "seen", "from 1 to 2"),
        ((1,), "GeneratorsRaised", "FAILED", "more generators: not within"),
        ((2, 2, 1), "GeneratorsRaised", "FAILED", "2 generators became 1 while the autoscaler was away"),
        ((2, 2, 2, 1), "GeneratorsHeld", "FAILED", "the event GeneratorsRaised: not within"),
    ],
)
def test_scaling_must_go_up_say_why_and_stay(
    replicas: tuple[int, ...], reason: str, verdict: str, sentence: str
) -> None:
    cluster = StandIn()
    _scaled(cluster, iter(replicas), reason)
    row = seen("scaling with KEDA", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    if verdict == "seen":
        upgrades = [text for text in cluster.asked if "autoscaler.mode=none" in text]
        assert [text.endswith("--force-conflicts") for text in upgrades] == [True, True]


def test_an_old_helm_knows_no_conflicts() -> None:
    cluster = StandIn()
    cluster.answers["version --template"] = "v3.18.4"
    assert seen("upgrade: no autoscaler", cluster)["verdict"] == "seen"
    assert not [text for text in cluster.asked if "--force-conflicts" in text]


def _probing(cluster: StandIn, reached: str) -> None:
    """Pods that probe reach what fits the pattern."""
    created: list[str] = []

    def logs(text: str) -> str:
        lines = [f"{'reached' if re.search(reached, place) else 'closed'} {place}" for place in created]
        return "\n".join(lines)

    def run(command: list[str], seconds: float, given: str | None = None) -> str:
        if given:
            created[:] = json.loads(given)["spec"]["containers"][0]["command"][3:]
        return StandIn.run(cluster, command, seconds, given)

    cluster.run = run  # type: ignore[method-assign]
    cluster.answers["^logs"] = logs


@pytest.mark.parametrize(
    ("neighbour", "stranger", "verdict", "sentence"),
    [
        ("forecaster", "nothing", "seen", "reached nothing"),
        (
            "nothing",
            "nothing",
            "FAILED",
            "a pod beside it reached nothing, not proof-rollcast-forecaster.somewhere:8400",
        ),
        ("forecaster", "redis", "FAILED", "another namespace reached proof-rollcast-redis.somewhere:6379, not nothing"),
        (".", ".", "FAILED", "does the network of this cluster obey policies?"),
    ],
)
def test_policies_must_close_what_they_say_and_no_more(
    neighbour: str, stranger: str, verdict: str, sentence: str
) -> None:
    here, there = StandIn(), StandIn("somewhere-2")
    here.there["pods"].append(pod("grader"))
    _probing(here, neighbour)
    _probing(there, stranger)
    row = seen("policies", here, there)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


@pytest.mark.parametrize(("counted", "verdict"), [(0, "seen"), (1, "FAILED")])
def test_a_jobset_must_not_count_a_pod_that_was_deleted(counted: int, verdict: str) -> None:
    cluster = StandIn()
    cluster.there["jobsets.jobset.x-k8s.io"] = [thing("JobSet", "set", status={"restartsCountTowardsMax": counted})]

    def deleted(text: str) -> str:
        cluster.there["pods"] = [*cluster.there["pods"][1:], pod("trainer", "another")]
        return ""

    cluster.answers["^delete pod"] = deleted
    assert seen("JobSet", cluster)["verdict"] == verdict


@pytest.mark.parametrize(("leaves", "verdict"), [(True, "seen"), (False, "FAILED")])
def test_a_queue_must_admit_suspend_and_resume(leaves: bool, verdict: str) -> None:
    cluster = StandIn()
    for item in cluster.there["pods"] + cluster.there["jobs"]:
        item["metadata"]["labels"]["app.kubernetes.io/instance"] = "queued"
    pods = cluster.there["pods"]
    workload = {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}
    cluster.answers |= {
        "^get crd": "v1beta1",
        "^get workloads": json.dumps({"items": [workload]}),
        "HoldAndDrain": lambda text: cluster.there.update(pods=pods[1:] if leaves else pods) or "",
        '"None"': lambda text: cluster.there.update(pods=pods) or "",
    }
    assert seen("Kueue", cluster)["verdict"] == verdict
    assert [text.split()[0] for text in cluster.asked[-2:]] == ["uninstall", "delete"], "its traces are removed"


CLAIM = thing("PersistentVolumeClaim", "data-proof-rollcast-redis-0", "redis")


@pytest.mark.parametrize(
    ("left", "verdict", "sentence"),
    [
        (
            {"jobs": [job("forgotten", 76)], "persistentvolumeclaims": [CLAIM]},
            "FAILED",
            "Job/forgotten",
        ),
        ({"persistentvolumeclaims": [CLAIM]}, "seen", "redis-0, as documented"),
        ({"persistentvolumeclaims": []}, "FAILED", "claims that stay: none"),
        ({"persistentvolumeclaims": [CLAIM, thing("PersistentVolumeClaim", "runs")]}, "FAILED", "runs, not data-"),
        ({"jobs": [job("at-work")], "persistentvolumeclaims": [CLAIM]}, "FAILED", "Job/at-work"),
        ({"scaledobjects.keda.sh": [thing("ScaledObject", "s")]}, "FAILED", "ScaledObject/s"),
        ({"podmonitors.monitoring.coreos.com": [thing("PodMonitor", "m")]}, "FAILED", "PodMonitor/m"),
        ({"poddisruptionbudgets": [thing("PodDisruptionBudget", "b")]}, "FAILED", "PodDisruptionBudget/b"),
        (
            {"priorityclasses": [thing("PriorityClass", "somewhere.proof-rollcast-trainer-1")]},
            "FAILED",
            "PriorityClass/somewhere.proof-rollcast-trainer-1",
        ),
    ],
)
def test_an_uninstall_must_leave_what_the_documents_say(
    left: dict[str, list[Object]], verdict: str, sentence: str
) -> None:
    cluster = StandIn()

    def removed(text: str) -> str:
        cluster.there = dict(left)
        return ""

    def deleted(text: str) -> str:
        cluster.there.pop({"job": "jobs", "pvc": "persistentvolumeclaims"}[text.split()[1]], None)
        return ""

    cluster.answers |= {"^uninstall": removed, "^delete (job|pvc) ": deleted}
    row = seen("uninstall", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


def _prometheus(cluster: StandIn, silent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers every query but those, be it asked or the forecaster."""
    monkeypatch.setattr(watching, "substituted", lambda text, *_: text)
    monkeypatch.setattr(watching, "quote", lambda text: text)

    def answer(text: str) -> str:
        expression = shlex.split(text)[-1].partition("query?query=")[2]
        return json.dumps({"data": {"result": [] if expression in silent else [1]}})

    cluster.there["pods"].append(pod("autoscaler"))
    cluster.answers |= {"^get --raw": answer, r"^exec .*8400/prometheus": '{"data": {"result": [1]}}'}


def test_a_query_without_data_fails_unless_it_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS", "monitoring/prometheus:9090")
    cluster = StandIn()
    _prometheus(cluster, set(NOT_IN_A_LOCAL_RUN), monkeypatch)
    assert seen("the dashboards' queries", cluster)["verdict"] == "seen"
    target = next(panel for panel in load(DASHBOARDS[1])["panels"] if panel.get("targets"))["targets"][0]
    _prometheus(cluster, {target["expr"]}, monkeypatch)
    row = seen("the dashboards' queries", cluster)
    assert row["verdict"] == "FAILED"
    assert target["expr"] in row["note"]


class Grafana:
    """A server that has the four dashboards of the release, its data sources, and data but for some queries."""

    def __init__(self, silent: set[str] | None = None, lacks: str = "") -> None:
        missing = silent or set()
        boards = {path.stem: {**load(path), "title": f"{load(path)['title']} (somewhere/proof)"} for path in DASHBOARDS}
        boards.pop(lacks, None)
        uids = {"Rollcast forecast somewhere/proof": "ahead", "Prometheus": "now"}
        sources = [{"name": name, "type": "prometheus", "uid": uid} for name, uid in uids.items()]
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, _, name = self.path.removeprefix("/api/").partition("/uid/")
                if kind.startswith("search"):
                    self.send([{"title": board["title"], "uid": uid} for uid, board in boards.items()])
                else:
                    self.send(sources if kind == "datasources" else {"dashboard": boards[name]})

            def do_POST(self) -> None:
                (query,) = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
                asked.append(query["datasource"]["uid"])
                values = [[]] if query["expr"] in missing else [[1], [2]]
                self.send({"results": {"A": {"frames": [{"data": {"values": values}}]}}})

            def send(self, answer: Any) -> None:
                allowed = self.headers["authorization"] == "Basic YWRtaW46c2VjcmV0"  # admin:secret
                self.send_response(200 if allowed else 401)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A program in the place of kubectl that reads a Secret, and says where it forwards to."""
    admin = json.dumps({"data": {"admin-user": "YWRtaW4=", "admin-password": "c2VjcmV0"}})

    def forwards_to(port: int) -> None:
        said = f"Forwarding from 127.0.0.1:{port} -> 3000"
        lines = ("#!/bin/sh", f"[ $3 = get ] && exec echo '{admin}'", f"echo '{said}'", "exec sleep 60")
        program = tmp_path / "kubectl"
        program.write_text("\n".join(lines))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return forwards_to


@pytest.mark.parametrize(
    ("lacks", "is_silent", "verdict", "sentence"),
    [
        ("", False, "seen", "four dashboards, both data sources"),
        ("fleet", False, "FAILED", "Grafana has the four dashboards: not within"),
        ("", True, "FAILED", "no data for "),
    ],
)
def test_grafana_must_have_the_dashboards_and_show_something_on_every_panel(
    lacks: str,
    is_silent: bool,
    verdict: str,
    sentence: str,
    kubectl: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAFANA", "monitoring/grafana:80")
    monkeypatch.setattr(watching, "substituted", lambda text, *_: text)
    target = next(panel for panel in load(DASHBOARDS[1])["panels"] if panel.get("targets"))["targets"][0]
    server = Grafana({target["expr"]} if is_silent else set(NOT_IN_A_LOCAL_RUN), lacks)
    kubectl(server.server.server_address[1])
    cluster = StandIn()
    cluster.there["pods"].append(pod("autoscaler"))
    threading.Thread(target=server.server.serve_forever, daemon=True).start()
    try:
        row = seen("Grafana", cluster)
    finally:
        server.server.shutdown()
        server.server.server_close()
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    if verdict == "seen":
        assert set(server.asked) == {"ahead", "now"}
