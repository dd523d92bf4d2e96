"""What the cluster test makes of a cluster's answers: each step, with a cluster that is right and
with wrong ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from testkit.cluster import moves, tools
from testkit.cluster.tools import Refuted
from tests.chart.cluster_stand_in import (
    Clock,
    Object,
    StandIn,
    fails,
    job,
    make_proof,
    pod,
    take_step,
    thing,
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    passing = Clock()
    monkeypatch.setattr(tools, "time", passing)
    return passing


def test_a_helm_test_whose_logs_are_not_found_fails() -> None:
    cluster = StandIn()
    cluster.answers["^test proof --logs"] = (
        "POD LOGS: ...\ntwo ranks added up over the headless Service"
    )
    assert take_step("helm test", cluster)["verdict"] == "seen"
    cluster.answers["^test proof --logs"] = ""
    assert take_step("helm test", cluster)["verdict"] == "FAILED"


@pytest.mark.parametrize(
    ("replaced", "verdict"),
    [
        (("trainer", "forecaster"), "seen"),
        (("trainer", "forecaster", "generator"), "FAILED"),
        (("trainer",), "FAILED"),
    ],
)
def test_an_upgrade_must_replace_what_reads_it_and_nothing_else(
    replaced: tuple[str, ...], verdict: str
) -> None:
    cluster = StandIn()

    def upgraded(text: str) -> str:
        kept = [
            item
            for item in cluster.there["pods"]
            if item["metadata"]["uid"].removesuffix("-0") not in replaced
        ]
        cluster.there["pods"] = kept + [pod(role, "another") for role in replaced]
        return ""

    cluster.answers["^upgrade"] = upgraded
    assert take_step("upgrade: another budget", cluster)["verdict"] == verdict


def _failing(cluster: StandIn, clock: Clock, code: int, is_half_way: bool = True) -> None:
    """Upgrades as Helm carries them out: one that ends half-way forgets the new Job, the next
    deletes the former.
    """

    def broken(text: str) -> str:
        if is_half_way:
            cluster.there["jobs"].append(job("second"))
        return fails("CronJob is invalid: spec.schedule")

    def mended(text: str) -> str:
        cluster.there["jobs"] = [job("second"), job("third")]
        clock.happens = [lambda: cluster.there.update(jobs=[job("second", code), job("third")])]
        return ""

    def back(text: str) -> str:
        cluster.there["jobs"] = [job("third")]
        return ""

    cluster.answers |= {
        "^history": json.dumps(
            [{"revision": 7, "status": "deployed"}, {"revision": 8, "status": "failed"}]
        ),
        "^upgrade": mended,
        "budget.steps=100003$": back,
        "prompts_per_step=-1|persistence.size|trainer.affinity": fails,
        "extraObjects": broken,
    }


@pytest.mark.parametrize(
    ("code", "is_half_way", "verdict", "sentence"),
    [
        (
            76,
            True,
            "seen",
            "the former trainer stayed, then the one that Helm had forgotten left with 76",
        ),
        (1, True, "FAILED", "the trainer that Helm has forgotten has left with 76: not within"),
        (76, False, "FAILED", "did not fail half-way"),
    ],
)
def test_after_an_upgrade_that_fails_half_way_one_trainer_is_left(
    code: int, is_half_way: bool, verdict: str, sentence: str, clock: Clock
) -> None:
    cluster = StandIn()
    _failing(cluster, clock, code, is_half_way)
    row = take_step("an upgrade that fails", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    assert "rollback proof 7 --force-conflicts" in cluster.commands, (
        "to the revision that is deployed"
    )


def test_a_trainer_that_leaves_after_a_refused_job_is_a_failure(clock: Clock) -> None:
    cluster = StandIn()
    _failing(cluster, clock, 76)

    def refused(text: str) -> str:
        clock.happens = [
            lambda: cluster.there.update(
                pods=[pod("trainer", "another"), *cluster.there["pods"][1:]]
            )
        ]
        return fails(
            "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' "
            "or 'NotIn'"
        )

    cluster.answers["trainer.affinity"] = refused
    row = take_step("an upgrade that fails", cluster)
    assert (row["verdict"], "the former trainer has left" in row["note"]) == ("FAILED", True), row


@pytest.mark.parametrize(
    ("history", "asked", "verdict"),
    [
        ([(15, "superseded"), (16, "failed"), (17, "superseded"), (24, "deployed")], "15", "seen"),
        (
            [(14, "failed"), (15, "pending-upgrade"), (23, "superseded"), (24, "deployed")],
            "23",
            "seen",
        ),
        ([(24, "deployed")], None, "not seen"),
    ],
)
def test_a_rollback_goes_to_the_oldest_revision_that_helm_keeps(
    history: list[tuple[int, str]], asked: str | None, verdict: str
) -> None:
    """Of 24 it keeps ten."""
    cluster = StandIn()
    cluster.answers["^history"] = json.dumps(
        [{"revision": number, "status": status} for number, status in history]
    )
    kept = {str(number) for number, _ in history}
    cluster.answers["^rollback"] = lambda text: (
        "" if text.split()[2] in kept else fails("release: not found")
    )
    assert take_step("a rollback", cluster)["verdict"] == verdict
    found = [text.split()[2] for text in cluster.commands if text.startswith("rollback")]
    assert found == ([] if asked is None else [asked])


@pytest.mark.parametrize(
    ("holds", "verdict", "sentence"),
    [(True, "seen", "budget held"), (False, "FAILED", "evicted in spite of its disruption budget")],
)
def test_a_drain_evicts_pods_of_this_namespace_alone(
    holds: bool, verdict: str, sentence: str
) -> None:
    """A release of the same name elsewhere has pods of the same labels on the same node."""
    cluster = StandIn()

    def evicted(text: str) -> str:
        if "pods/trainer-0" in text and holds:
            return fails("Cannot evict pod as it would violate the pod's disruption budget.")
        cluster.there["pods"] = [
            pod(str(item["metadata"]["labels"]["app.kubernetes.io/component"]), "another")
            if f"pods/{item['metadata']['name']}/" in text
            else item
            for item in cluster.there["pods"]
        ]
        return ""

    cluster.answers["eviction"] = evicted
    row = take_step("a node drained", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    changing = [
        text
        for text in cluster.commands
        if text.split()[0] in ("cordon", "create", "uncordon", "drain", "delete")
    ]
    path = "create --raw /api/v1/namespaces/somewhere/pods/{}-0/eviction -f -"
    assert changing == [
        *("cordon node", path.format("generator"), "uncordon node"),
        *("cordon node", path.format("trainer"), "uncordon node"),
    ]


def test_two_trainers_that_stay_are_a_failure(clock: Clock) -> None:
    cluster = StandIn()
    _failing(cluster, clock, 76)
    cluster.there["pods"].append(pod("trainer", "a second"))
    assert "one trainer: not within" in take_step("an upgrade that fails", cluster)["note"]


def test_what_cannot_be_asked_for_yet_is_waited_for_and_named_in_the_end(clock: Clock) -> None:
    cluster = StandIn()
    cluster.answers["^get deployment"] = fails
    clock.happens = [
        lambda: cluster.answers.update({"^get deployment": '{"spec": {"replicas": 2}}'})
    ]
    release = make_proof(cluster).release
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
            item
            for item in cluster.there["pods"]
            if not item["metadata"]["name"].startswith("auto")
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
        ((1, *[2] * 6, 1), "GeneratorsRaised", "seen", "from 1 to 2"),
        ((1,), "GeneratorsRaised", "FAILED", "more generators: not within"),
        (
            (2, 2, 1),
            "GeneratorsRaised",
            "FAILED",
            "fewer than 2 generators while the autoscaler was away",
        ),
        (
            (2, 2, 2, 2, 1, 2),
            "GeneratorsRaised",
            "FAILED",
            "fewer than 2 generators while the autoscaler was away",
        ),
        ((2, 2), "GeneratorsHeld", "FAILED", "the event GeneratorsRaised: not within"),
    ],
)
def test_scaling_must_go_up_say_why_and_stay(
    replicas: tuple[int, ...], reason: str, verdict: str, sentence: str
) -> None:
    cluster = StandIn()
    _scaled(cluster, iter(replicas), reason)
    row = take_step("scaling with KEDA", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row
    if verdict == "seen":
        upgrades = [text for text in cluster.commands if "autoscaler.mode=none" in text]
        assert [text.endswith("--force-conflicts") for text in upgrades] == [True, True]


def test_an_old_helm_knows_no_conflicts() -> None:
    cluster = StandIn()
    cluster.answers["version --template"] = "v3.18.4"
    assert take_step("upgrade: no autoscaler", cluster)["verdict"] == "seen"
    assert not [text for text in cluster.commands if "--force-conflicts" in text]


def _probing(cluster: StandIn, reached: str) -> None:
    """Pods that probe reach what fits the pattern."""
    created: list[str] = []

    def logs(text: str) -> str:
        lines = [
            f"{'reached' if re.search(reached, place) else 'closed'} {place}" for place in created
        ]
        return "\n".join(lines)

    def run(command: list[str], seconds: float, stdin_text: str | None = None) -> str:
        if stdin_text:
            created[:] = json.loads(stdin_text)["spec"]["containers"][0]["command"][3:]
        return StandIn.run(cluster, command, seconds, stdin_text)

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
        (
            "forecaster",
            "redis",
            "FAILED",
            "another namespace reached proof-rollcast-redis.somewhere:6379, not nothing",
        ),
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
    row = take_step("policies", here, there)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


@pytest.mark.parametrize(("counted", "verdict"), [(0, "seen"), (1, "FAILED")])
def test_a_jobset_must_not_count_a_pod_that_was_deleted(counted: int, verdict: str) -> None:
    cluster = StandIn()
    cluster.there["jobsets.jobset.x-k8s.io"] = [
        thing("JobSet", "set", status={"restartsCountTowardsMax": counted})
    ]

    def deleted(text: str) -> str:
        cluster.there["pods"] = [*cluster.there["pods"][1:], pod("trainer", "another")]
        return ""

    cluster.answers["^delete pod"] = deleted
    assert take_step("JobSet", cluster)["verdict"] == verdict


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
    assert take_step("Kueue", cluster)["verdict"] == verdict
    assert [text.split()[0] for text in cluster.commands[-2:]] == ["uninstall", "delete"], (
        "its traces are removed"
    )


def _refusing(cluster: StandIn, message: str) -> None:
    cluster.answers |= {
        "^install": lambda text: fails(message),
        (
            "^logs job/refused-rollcast-dry-run"
        ): "error: pods of trainer: no class rollcast-no-such-class was found",
    }


@pytest.mark.parametrize(
    ("step", "message", "verdict"),
    [
        (
            "no image",
            "pod refused-rollcast-pull-registry.invalid-5000-library-redis-7.2.7-alpine failed",
            "seen",
        ),
        ("no image", "job refused-rollcast-image-watch failed", "FAILED"),
        ("a pod that the API server refuses", "job refused-rollcast-dry-run failed", "seen"),
        ("an uninstall after a refusal", "job refused-rollcast-dry-run failed", "seen"),
    ],
)
def test_a_refused_install_names_its_cause_and_is_removed(
    step: str, message: str, verdict: str
) -> None:
    cluster = StandIn()
    _refusing(cluster, message)
    assert take_step(step, cluster)["verdict"] == verdict
    if verdict == "seen":
        assert "uninstall refused" in cluster.commands


def test_what_hooks_leave_after_an_uninstall_is_named() -> None:
    cluster = StandIn()
    _refusing(cluster, "job refused-rollcast-dry-run failed")
    role = thing("Role", "refused-rollcast-image-watch", "image-watch")
    role["metadata"]["labels"]["app.kubernetes.io/instance"] = "refused"
    cluster.there["roles"] = [role]
    row = take_step("an uninstall after a refusal", cluster)
    assert (row["verdict"], "Role/refused-rollcast-image-watch" in row["note"]) == (
        "FAILED",
        True,
    ), row


@pytest.mark.parametrize(
    ("message", "verdict"), [("failed quota: must specify limits.cpu", "seen"), ("no", "FAILED")]
)
def test_a_quota_is_made_elsewhere_and_removed_in_any_case(message: str, verdict: str) -> None:
    there = StandIn("somewhere-2")
    _refusing(there, message)
    assert take_step("a quota on CPU limits", StandIn(), there)["verdict"] == verdict
    assert [text.split()[0] for text in there.commands if text.split()[0] != "version"] == [
        *("create", "install", "delete", "uninstall")
    ]


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
        (
            {"persistentvolumeclaims": [CLAIM, thing("PersistentVolumeClaim", "runs")]},
            "FAILED",
            "runs, not data-",
        ),
        ({"jobs": [job("at-work")], "persistentvolumeclaims": [CLAIM]}, "FAILED", "Job/at-work"),
        ({"scaledobjects.keda.sh": [thing("ScaledObject", "s")]}, "FAILED", "ScaledObject/s"),
        (
            {"podmonitors.monitoring.coreos.com": [thing("PodMonitor", "m")]},
            "FAILED",
            "PodMonitor/m",
        ),
        (
            {"poddisruptionbudgets": [thing("PodDisruptionBudget", "b")]},
            "FAILED",
            "PodDisruptionBudget/b",
        ),
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
    row = take_step("uninstall", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


def _moving(cluster: StandIn, clock: Clock, slow_from: int) -> None:
    """Each trainer that is deleted comes back: at the first look, and from the move `slow_from` on
    at the second.
    """
    moves = iter(range(100))

    def gone(text: str) -> str:
        number = next(moves)
        others = [
            item
            for item in cluster.there["pods"]
            if not item["metadata"]["name"].startswith("trainer")
        ]
        cluster.there["pods"] = others

        def back() -> None:
            cluster.there["pods"] = [*others, pod("trainer", f"moved-{number}")]

        clock.happens = [back] if number < slow_from else [lambda: None, back]
        return ""

    cluster.there["pods"].append(pod("autoscaler"))
    cluster.answers |= {
        "^exec autoscaler-0 .*readyz": "holding 1: autoscaler.most is 1",
        "^get events": json.dumps({"items": [{"reason": "TrainerReplaced"}]}),
        "^delete (pod|job)": gone,
    }


@pytest.mark.parametrize(
    ("slow_from", "change", "verdict", "sentence"),
    [
        (100, {}, "seen", "8 moves, each with another pod within 70 s"),
        (3, {}, "FAILED", "another trainer: not within 70 s"),
        (6, {}, "FAILED", "another trainer: not within 70 s"),
        (100, {"^get events": "{}"}, "FAILED", "no event TrainerReplaced"),
        (
            100,
            {"readyz": "holding 1: too little was measured"},
            "FAILED",
            "the bound's name: not within",
        ),
    ],
)
def test_a_wait_that_grows_with_each_move_fails(
    slow_from: int, change: dict[str, str], verdict: str, sentence: str, clock: Clock
) -> None:
    cluster = StandIn()
    _moving(cluster, clock, slow_from)
    cluster.answers |= change
    row = take_step("the trainer moved", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


@pytest.mark.parametrize(("lines", "verdict"), [(8, "seen"), (80, "FAILED"), (0, "FAILED")])
def test_generators_that_flood_their_log_without_a_trainer_fail(lines: int, verdict: str) -> None:
    cluster = StandIn()
    trainer = cluster.there["pods"][0]

    def suspended(text: str) -> str:
        rest = (
            cluster.there["pods"][1:]
            if "suspend=true" in text
            else [trainer, *cluster.there["pods"]]
        )
        cluster.there["pods"] = rest
        return ""

    cluster.answers |= {
        "^upgrade": suspended,
        "^logs": "weight sync is not connected; trying again\n" * lines,
    }
    assert take_step("the trainer away", cluster)["verdict"] == verdict


@pytest.mark.parametrize(
    ("first", "second", "verdict", "sentence"),
    [
        (
            "error: another trainer rank ended or does not answer (x)",
            "this rank follows rank 0",
            "seen",
            "named",
        ),
        (
            "RuntimeError: Connection closed by peer",
            "this rank follows rank 0",
            "FAILED",
            "in the first pod's log",
        ),
        (
            "another trainer rank ended or does not answer",
            "",
            "FAILED",
            "does not say that it follows",
        ),
        (
            "Traceback another trainer rank ended or does not answer",
            "this rank follows rank 0",
            "FAILED",
            "traceback",
        ),
        (
            "another trainer rank ended or does not answer",
            "this rank follows rank 0 timed out after",
            "FAILED",
            "torch",
        ),
    ],
)
def test_what_ranks_say_of_one_another_is_read_in_both_pods(
    first: str, second: str, verdict: str, sentence: str
) -> None:
    cluster = StandIn()
    cluster.there["pods"] = [pod("trainer", "0"), pod("trainer", "1")]
    for index, item in enumerate(cluster.there["pods"]):
        item["metadata"]["name"] = f"trainer-{index}"
        item["metadata"]["labels"] |= {
            "app.kubernetes.io/instance": "pair",
            moves.INDEX: str(index),
        }

    def killed(text: str) -> str:
        cluster.answers["^logs trainer-1"] = second + "\nrank 1 killed by SIGKILL"
        return ""

    cluster.answers |= {"^logs trainer-0": first, "^logs trainer-1": second}
    cluster.answers["(?s)^exec trainer-1 .*os.kill"] = killed
    row = take_step("two trainer pods", cluster)
    assert (row["verdict"], sentence in row["note"]) == (verdict, True), row


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("generator ends reason=the engine's process was killed by SIGKILL", "seen"),
        ("EngineDeadError: See stack trace (above)", "FAILED"),
    ],
)
def test_the_end_of_an_engine_must_be_named(said: str, verdict: str) -> None:
    cluster = StandIn()
    cluster.answers["^logs generator-0 .*--previous"] = said
    assert take_step("an engine killed", cluster)["verdict"] == verdict


@pytest.mark.parametrize(
    ("refusal", "verdict"),
    [
        ("config.run = demo: release proof has a run of this name in namespace somewhere", "seen"),
        ("invalid ownership metadata", "FAILED"),
    ],
)
def test_a_second_run_of_a_name_is_refused_in_words(refusal: str, verdict: str) -> None:
    cluster, there = StandIn(), StandIn("somewhere-2")
    labelled = []
    for item in cluster.there["pods"]:
        labels = {**item["metadata"]["labels"], "app.kubernetes.io/instance": "beside"}
        labelled.append({**item, "metadata": {**item["metadata"], "labels": labels}})
    cluster.there["pods"] += labelled
    cluster.answers["^upgrade beside .*config.run=demo"] = lambda text: fails(refusal)
    assert take_step("a second release", cluster, there)["verdict"] == verdict
