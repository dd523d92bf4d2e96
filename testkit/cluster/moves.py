"""The trainer moved, away and in two pods, and what each process says when another one is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rollcast.autoscaler.announcer import Occasion
from testkit.cluster.changes import NO_AUTOSCALER, end_autoscaling
from testkit.cluster.proof import Proof
from testkit.cluster.release import READY_SECONDS, READYZ, STEP_SECONDS, Release
from testkit.cluster.tools import Cluster, NotSeen, Refuted

MOVES = 4
MOVE_SECONDS = 70.0
"""Time from a trainer's end to the next pod. At the fourth move the Job controller alone waits 80
s."""
AWAY_SECONDS = 120.0
INDEX = "batch.kubernetes.io/job-completion-index"
KILL_RANK = """
import os, pathlib, signal
for entry in pathlib.Path("/proc").glob("[0-9]*"):
    if b"rollcast.trainer" in (entry / "cmdline").read_bytes().split(b"\\0"):
        os.kill(int(entry.name), signal.SIGKILL)
"""
KILL_ENGINE = """
import os, pathlib, signal
for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
    if link.is_symlink() and os.readlink(link).endswith("/engine"):
        os.kill(int(link.parts[2]), signal.SIGKILL)
"""


def move_trainer(proof: Proof) -> None:
    """Several times in a row: with an autoscaler by its pod, without one by its Job.

    No wait grows.
    """
    release, cluster = proof.release, proof.cluster
    release.upgrade("autoscaler.mode=controller", "autoscaler.maxReplicas=1")
    release.wait_ready("autoscaler")
    bound = "autoscaler.most is 1"
    cluster.until(
        "the bound's name", STEP_SECONDS, lambda: bound in release.page("autoscaler", READYZ)
    )

    def delete(kind: str) -> None:
        cluster.kubectl("delete", kind, "-l", release.labels("trainer"), seconds=READY_SECONDS)

    for _ in range(MOVES):
        _moves(proof, partial(delete, "pod"))
    event_reason = Occasion.MOVED.value
    cluster.require(lambda: event_reason in release.reasons(), f"no event {event_reason}")
    end_autoscaling(proof, NO_AUTOSCALER)

    def make_job_again() -> None:
        delete("job")
        release.upgrade()

    for _ in range(MOVES):
        _moves(proof, make_job_again)
    proof.note(
        f"{2 * MOVES} moves, each with another pod within {MOVE_SECONDS:.0f} s; a bound named as a "
        "reason"
    )


def _moves(proof: Proof, move: Callable[[], object]) -> None:
    uids_before = proof.release.uids()["trainer"]
    move()
    proof.release.wait_replaced("trainer", uids_before, MOVE_SECONDS)
    proof.release.goes_on()


def away(proof: Proof) -> None:
    """Generators without a trainer say so ever more seldom."""
    release, cluster = proof.release, proof.cluster
    release.upgrade("trainer.suspend=true")
    cluster.until("no trainer", READY_SECONDS, lambda: not release.pods("trainer"))
    cluster.always(AWAY_SECONDS, lambda: release.pods("generator"), "the generators have left")
    since = f"--since={AWAY_SECONDS:.0f}s"
    logs = cluster.kubectl(
        "logs", "-l", release.labels("generator"), "-c", "generator", "--tail=-1", since
    )
    lines = logs.count("weight sync is not connected")
    # Lines of a generator about a trainer that is away for AWAY_SECONDS: one at each doubling, from
    # a second on
    max_lines = 10 * max(1, len(release.pods("generator")))
    cluster.require(
        lambda: 0 < lines <= max_lines,
        f"{lines} lines about a trainer that is away, of at most {max_lines}",
    )
    release.upgrade("trainer.suspend=false")
    release.goes_on()
    proof.note(f"{lines} lines in {AWAY_SECONDS:.0f} s")


def two_pods(proof: Proof) -> None:
    """The second pod logs that it follows, its rank is killed, and both say so in a sentence."""
    release, cluster = proof.pair, proof.cluster
    release.install()
    try:
        cluster.until("two trainer pods", READY_SECONDS, lambda: len(release.pods("trainer")) == 2)
        release.goes_on()
    except Refuted as error:
        release.uninstall()
        raise NotSeen(
            f"no storage class gives two pods a volume (ReadWriteMany): {error}"
        ) from error
    first, second = _trainer_pods(release)
    second_log = _log(cluster, second)
    cluster.require(
        lambda: "this rank follows rank 0" in second_log,
        "the second pod does not say that it follows",
    )
    cluster.require(
        lambda: "timed out after" not in second_log, "torch's warnings are in the second pod's log"
    )
    cluster.kubectl("exec", second, "-c", "trainer", "--", "python", "-c", KILL_RANK)
    for pod, place, sentence in (
        (second, "its pod's log", "rank 1 killed by SIGKILL"),
        (first, "the first pod's log", "another trainer rank ended or does not answer"),
    ):
        is_logged = partial(lambda pod, words: words in _log(cluster, pod), pod, sentence)
        cluster.until(f"{sentence}, in {place}", STEP_SECONDS, is_logged)
    cluster.require(
        lambda: "Traceback" not in _log(cluster, first), "a traceback is in the first pod's log"
    )
    release.goes_on()
    release.uninstall()
    proof.note("the killed rank is named with its signal; the rank beside it ended in a sentence")


def _trainer_pods(release: Release) -> tuple[str, str]:
    """Names of the pods of rank 0 and rank 1."""
    if release.cluster.recorded is not None:
        return "POD", "POD"
    index = {
        pod["metadata"]["labels"][INDEX]: pod["metadata"]["name"] for pod in release.pods("trainer")
    }
    return index["0"], index["1"]


def _log(cluster: Cluster, pod: str) -> str:
    return cluster.kubectl("logs", pod, "-c", "trainer")


def engine_killed(proof: Proof) -> None:
    """The generator's last words name the signal that ended its engine, and another one starts."""
    release, cluster = proof.release, proof.cluster
    release.wait_ready("generator")
    pod = release.first_pod("generator")
    cluster.kubectl("exec", pod, "-c", "generator", "--", "python", "-c", KILL_ENGINE)
    killed = "the engine's process was killed by SIGKILL"
    cluster.until(
        f"{killed}, in its log",
        STEP_SECONDS,
        lambda: killed in cluster.kubectl("logs", pod, "-c", "generator", "--previous"),
    )
    release.wait_ready("generator")
    release.goes_on()
    proof.note("the signal is named, and the generator came back")
