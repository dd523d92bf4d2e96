"""A generator's end against real graders that are full, killed, stopped, stuck in an import, or
behind certificates.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollcast.config.errors import EXIT_USER_ERROR
from rollcast.tasks.verifiers import Grade
from rollcast.telemetry import generator_metrics, grader_metrics
from testkit.connections.certificates import make_certificates
from testkit.thread_signals import terminate_beside_the_main_thread
from tests.grader.processes import Client, GraderProcess, door

pytestmark = [
    pytest.mark.protections,
    pytest.mark.timeout(300),
]
RIGHT = "```python\ndef f(x): return x + 1\n```"
SLOW = "```python\nimport time\ndef f(x):\n    time.sleep(1)\n    return x + 1\n```"
SLOWER = SLOW.replace("sleep(1)", "sleep(2)")
ADDS = json.dumps({"kind": "tests", "tests": "assert f(1) == 2"})
LIMITS: dict[str, Any] = {"deadline_seconds": 8.0, "seconds_per_test": 6.0, "memory_mib": 256}


def test_a_grader_killed_in_the_middle_is_replaced_by_the_next_behind_the_name(
    tmp_path: Path,
) -> None:
    with (
        GraderProcess(tmp_path / "a") as first,
        GraderProcess(tmp_path / "b") as second,
        door(first.port, second.port) as entry,
        ThreadPoolExecutor(4) as threads,
    ):
        client = first.client(port=entry.port)
        assert client.grade("code", RIGHT, ADDS).status == "ok"
        gradings = [threads.submit(client.grade, "code", SLOWER, ADDS) for _ in range(4)]
        wait_until(lambda: first.metric(grader_metrics.GRADER_RUNNING) == 2)
        first.kill()
        assert [grading.result(60.0) for grading in gradings] == [Grade(1.0, "ok")] * 4
        assert second.metric(grader_metrics.GRADER_GRADINGS, status="ok") == 4
        assert client.count(generator_metrics.GRADER_FAILURES, code="unavailable") >= 4
        client.close()


def test_one_that_comes_back_in_time_grades_what_waited_for_it(tmp_path: Path) -> None:
    grader = GraderProcess(tmp_path)
    with grader, ThreadPoolExecutor(1) as threads, door(grader.port) as entry:
        client = grader.client(port=entry.port)
        grading = threads.submit(client.grade, "code", SLOWER, ADDS)
        assert grader.process is not None
        process = psutil.Process(grader.process.pid)
        wait_until(
            lambda: len(process.children(recursive=True)) == 3
        )  # fork server, judge, program
        children = process.children(recursive=True)
        grader.kill()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == [], "they die with their grader"
        with grader:
            entry.ports = [grader.port]
            assert grading.result(60.0) == Grade(1.0, "ok")
        client.close()


def test_a_full_grader_sends_away_and_no_clock_runs_for_who_waits(tmp_path: Path) -> None:
    """Seven of a second each, one at a time, with a deadline of four: some wait in the queue, some
    come again.
    """
    with GraderProcess(
        tmp_path, grader={"processes": 1, "queue": 2}, grading={"deadline_seconds": 4.0}
    ) as grader:
        client = grader.client()
        with ThreadPoolExecutor(7) as threads:
            gradings = [threads.submit(client.grade, "code", SLOW, ADDS) for _ in range(7)]
            assert [grading.result(90.0) for grading in gradings] == [Grade(1.0, "ok")] * 7
        refused = grader.metric(grader_metrics.GRADER_REFUSED, reason="full")
        assert (
            refused
            == client.count(generator_metrics.GRADER_FAILURES, code="resource_exhausted")
            > 0
        )
        assert grader.metric(grader_metrics.GRADER_GRADINGS) == 7

        # And when it is asked to stop, what runs is finished and what waits goes elsewhere.
        hasty = grader.client(patience_seconds=4.5)
        with ThreadPoolExecutor(2) as threads:
            runs = threads.submit(client.grade, "code", SLOW, ADDS)
            wait_until(lambda: grader.metric(grader_metrics.GRADER_RUNNING) == 1)
            waits = threads.submit(hasty.grade, "code", SLOW, ADDS)
            wait_until(lambda: grader.metric(grader_metrics.GRADER_WAITING) == 1)
            assert grader.process is not None
            os.kill(grader.process.pid, signal.SIGTERM)
            assert runs.result(30.0) == Grade(1.0, "ok")
            assert waits.result(30.0) == Grade(0.0, "error")
        assert hasty.count(generator_metrics.GRADER_FAILURES, code="unavailable") > 0
        assert grader.process.wait(30.0) == 0
        client.close()


def test_a_frozen_grader_costs_no_more_than_the_patience(tmp_path: Path) -> None:
    with GraderProcess(tmp_path / "grader") as grader:
        client = grader.client(patience_seconds=3.0)
        assert client.grade("code", RIGHT, ADDS) == Grade(1.0, "ok")
        assert grader.process is not None
        os.killpg(grader.process.pid, signal.SIGSTOP)
        grade = client.grade("code", RIGHT, ADDS)
        assert grade.status == "error"
        assert "DEADLINE_EXCEEDED" in grade.failure
        client.close()


def test_a_signal_that_reaches_any_of_its_threads_ends_it(tmp_path: Path) -> None:
    """The kernel chooses; the main thread slept on, and on a busy machine one grader in sixty never
    ended.
    """
    with GraderProcess(tmp_path / "grader") as grader:
        assert grader.process is not None
        terminate_beside_the_main_thread(grader.process.pid)
        assert grader.process.wait(30.0) == 0


def test_certificates_of_rpc_count_on_both_sides(tmp_path: Path) -> None:
    ours, theirs = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "theirs")
    tls = ours.model_dump(mode="json")
    with GraderProcess(tmp_path / "grader", rpc={"tls": tls}) as grader:
        trusted = grader.client()
        trusted.check(["code"])
        assert trusted.grade("code", RIGHT, ADDS).status == "ok"
        trusted.close()
        for other in (None, theirs):
            rpc = grader.config.rpc.model_copy(update={"tls": other})
            settings = grader.config.grader.model_copy(update={"port": grader.port})
            config = grader.config.model_copy(update={"rpc": rpc, "grader": settings})
            assert Client(config, 2.0).grade("code", RIGHT, ADDS) == Grade(0.0, "error")
        assert grader.metric(grader_metrics.GRADER_GRADINGS) == 1


def test_a_verifier_that_hangs_in_its_import_blocks_no_other_and_its_requests_are_sent_away(
    tmp_path: Path,
) -> None:
    (tmp_path / "reward.py").write_text(
        "import time\ntime.sleep(600)\ndef grade(completion, row):\n    return 1.0\n"
    )
    name = f"{tmp_path}/reward.py:grade"
    rows = {"kind": "jsonl", "name": "d", "path": "d.jsonl", "verifier": name}
    tasks = {"dataset": rows, "grading": LIMITS | {"sandbox": "remote"}}
    with GraderProcess(
        tmp_path / "grader", grader={"processes": 1, "queue": 0}, tasks=tasks
    ) as grader:
        stuck, client = grader.client(patience_seconds=15.0), grader.client()
        with ThreadPoolExecutor(4) as threads:
            waiting = [
                threads.submit(stuck.grade, name, "", "{}", deadline_seconds=8.0) for _ in range(4)
            ]
            assert client.grade("code", RIGHT, ADDS, deadline_seconds=8.0).status == "ok"
            assert client.grade("math", r"\boxed{4}", '"4"', deadline_seconds=8.0).status == "ok"
            assert not all(future.done() for future in waiting)
            assert {future.result(timeout=60.0).status for future in waiting} == {"error"}
        assert grader.metric(grader_metrics.GRADER_REFUSED, reason="importing") >= 4
        stuck.close()
        client.close()


def test_a_grader_runs_no_more_gradings_at_once_than_it_has_cores(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    with GraderProcess(tmp_path, grader={"processes": cores + 1}) as grader:
        assert f"grader.processes = {cores + 1} is reduced to " in grader.said()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with door() as taken:
        refused = GraderProcess(tmp_path, grader={"port": taken.port})
        assert refused.launch().wait(60.0) == EXIT_USER_ERROR
        assert f"grader.port = {taken.port}: 127.0.0.1 cannot listen on it" in refused.said()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
