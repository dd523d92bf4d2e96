"""Grading off the event loop: what is counted, and when a grading's clock starts."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from rollcast.cli.verifier_news import VerifierNews
from rollcast.config.datasets import JsonlDataset
from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading, Tasks
from rollcast.config.verifiers import HttpVerifier
from rollcast.generator.grading import GradingThreads, check_grading
from rollcast.rollouts.records import GradingStatus, LengthBudget, PromptTask, Purpose, Sampling
from rollcast.runfolder.verifier_failures import failures_file
from rollcast.tasks.sandbox import protections
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.metric import Metric

SLOW = "```python\nimport time\ndef f(x):\n    time.sleep(0.5)\n    return x\n```"
LOOP = "```python\ndef f(x):\n    while True: pass\n```"
TEXTS = [SLOW, LOOP]
NEEDS_PROTECTIONS = pytest.mark.protections


def make_task(verifier: str) -> PromptTask:
    return PromptTask(
        sequence=1,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="test",
        prompt_id="1",
        prompt_token_ids=np.asarray([7], dtype=np.int32),
        num_rollouts=1,
        sampling=Sampling(),
        length=LengthBudget(max_tokens=20),
        verifier=verifier,
        reference=json.dumps({"kind": "tests", "tests": "assert f(1) == 1"}),
    )


@pytest.fixture
async def grader() -> AsyncIterator[GradingThreads]:
    """A token's id is the number of the text it stands for."""

    def decode(ids: list[int]) -> str:
        return "".join(TEXTS[number] for number in ids if number < len(TEXTS))

    made = GradingThreads(
        decode, Tasks(grading=Grading(processes=1, deadline_seconds=3.0)), Exporter("test")
    )
    yield made
    await made.close()


def count(grader: GradingThreads, metric: Metric, **labels: str) -> float:
    return count_of(grader._exporter, metric, **labels)


@NEEDS_PROTECTIONS
async def test_gradings_that_wait_for_their_turn_do_not_time_out(grader: GradingThreads) -> None:
    """Eight of half a second each, one at a time, with a deadline of three seconds each."""
    graded = await asyncio.gather(*(grader.grade(make_task("code"), [0]) for _ in range(8)))
    assert [item.status for item in graded] == [GradingStatus.OK] * 8
    assert count(grader, generator_metrics.GRADINGS, status="ok") == 8


@NEEDS_PROTECTIONS
async def test_a_program_that_never_ends_is_wrong_and_counted_with_what_was_stopped(
    grader: GradingThreads,
) -> None:
    graded = await grader.grade(make_task("code"), [1])
    for _ in range(10):
        if graded.contained != "busy":
            break
        # Other work took the processors from the program: such a grading is no verdict.
        graded = await grader.grade(make_task("code"), [1])
    assert (graded.status, graded.reward, graded.contained) == (GradingStatus.WRONG, 0.0, "time")
    assert count(grader, generator_metrics.GRADINGS, status="wrong") == 1
    assert count(grader, generator_metrics.GRADINGS, status="timeout") == 0
    assert count(grader, generator_metrics.CONTAINED, reason="time") == 1
    assert count(grader, generator_metrics.GRADING_TIMEOUTS, dataset="test") == 1


@NEEDS_PROTECTIONS
async def test_a_judge_that_hangs_gives_no_verdict_and_is_counted_as_stopped(
    grader: GradingThreads,
) -> None:
    task = make_task("code")
    task.reference = json.dumps({"kind": "tests", "tests": "f(1)\nwhile True: pass"})
    graded = await grader.grade(task, [0])
    assert (graded.status, graded.reward, graded.contained) == (GradingStatus.TIMEOUT, 0.0, "time")
    assert count(grader, generator_metrics.GRADINGS, status="wrong") == 0
    assert count(grader, generator_metrics.GRADING_TIMEOUTS, dataset="test") == 1


async def test_a_verifier_that_is_being_imported_takes_no_thread_from_others(
    tmp_path: Path,
) -> None:
    """One thread, four gradings of a module that hangs in its import, and one of math."""
    (tmp_path / "reward.py").write_text(
        "import time\ntime.sleep(600)\ndef grade(completion, row):\n    return 1.0\n"
    )
    name = f"{tmp_path}/reward.py:grade"
    rows = JsonlDataset(name="d", path=Path("d.jsonl"), verifier=name)
    tasks = Tasks(dataset=rows, grading=Grading(processes=1, deadline_seconds=60.0))
    made, math = (
        GradingThreads(lambda ids: r"\boxed{4}", tasks, Exporter("test")),
        make_task("math"),
    )
    math.reference = '"4"'
    stuck = [asyncio.create_task(made.grade(make_task(name), [0])) for _ in range(4)]
    await asyncio.sleep(0.1)
    try:
        assert (await made.grade(math, [0])).status is GradingStatus.OK
        assert not any(task.done() for task in stuck)
    finally:
        await made.close()
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_a_generator_grades_on_no_more_cores_than_it_may_use_and_says_so_once() -> None:
    cores = len(os.sched_getaffinity(0))
    with capture_logs() as told:
        made = GradingThreads(
            lambda ids: "", Tasks(grading=Grading(processes=cores + 7)), Exporter("test")
        )
    assert made._threads._max_workers <= cores
    (line,) = told
    assert line["event"].startswith(
        f"tasks.grading.processes = {cores + 7} is reduced to {made._threads._max_workers}: "
    )
    await made.close()


def test_a_verifier_that_is_not_installed_stops_the_generator_at_its_start() -> None:
    rows = JsonlDataset(name="d", path=Path("d.jsonl"), verifier="mathh")
    with pytest.raises(
        UserError, match=r"verifier = 'mathh': neither built in nor installed here; choose"
    ):
        check_grading(Tasks(dataset=rows))


async def test_a_verifier_that_cannot_be_contained_is_refused_and_not_graded_wrong(
    grader: GradingThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protections, "has_seccomp", lambda: False)
    with pytest.raises(UserError, match="lacks seccomp"):
        await grader.grade(make_task("code"), [0])
    assert count(grader, generator_metrics.GRADINGS, status="wrong") == 0


async def test_a_verifier_that_fails_is_told_once_in_words_and_then_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the function's exception to the lines of whoever watches the run's folder."""
    (tmp_path / "reward.py").write_text(
        "def grade(completion, row):\n    return row['answer'] / 0\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = JsonlDataset(name="d", path=Path("d.jsonl"), verifier="./reward.py:grade")
    exporter = Exporter("test")
    made = GradingThreads(
        lambda ids: "",
        Tasks(dataset=rows),
        exporter,
        failures_file=failures_file(tmp_path, "generator-0"),
    )
    news, task = VerifierNews(tmp_path), make_task("./reward.py:grade")
    task.reference = json.dumps({"answer": 1})
    told = []
    try:
        for _ in range(5):
            graded = await made.grade(task, [0])
            assert (graded.status, graded.reward) == (GradingStatus.ERROR, 0.0)
            told.append(news.lines())
    finally:
        await made.close()
    name = "verifier ./reward.py:grade"
    said = f"ZeroDivisionError: division by zero ({tmp_path}/reward.py, line 2)"
    assert told == [
        [f"{name} gives no verdict: {said}; completions without a grade are left out"],
        [
            (
                f"{name} gave no verdict on 2 completions so far, first {said}; completions "
                "without a grade are left out"
            )
        ],
        [],
        [
            (
                f"{name} gave no verdict on 4 completions so far, first {said}; completions "
                "without a grade are left out"
            )
        ],
        [],
    ]
    assert (
        count_of(exporter, generator_metrics.VERIFIER_FAILURES, verifier="./reward.py:grade") == 5
    )


async def test_a_service_grades_beside_the_threads_and_its_requests_are_counted() -> None:
    """Nobody listens there: no verdict, and the generator goes on."""
    nowhere = HttpVerifier(name="away", url="http://127.0.0.1:9", tries=2, gather_seconds=0.0)
    exporter = Exporter("test")
    made = GradingThreads(lambda ids: "", Tasks(verifiers=(nowhere,)), exporter)
    graded = await made.grade(make_task("away"), [0])
    await made.close()
    assert graded.status is GradingStatus.ERROR
    assert "cannot be reached" in graded.failure
    assert (
        count_of(
            exporter, generator_metrics.VERIFIER_REQUESTS, verifier="away", outcome="unreachable"
        )
        == 2
    )


def test_a_verifier_that_does_not_import_stops_the_generator_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reward.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    rows = JsonlDataset(name="d", path=Path("d.jsonl"), verifier="./reward.py:grade")
    with pytest.raises(
        UserError, match=r"verifier ./reward.py:grade: it cannot be imported: .*nowhere_to_be_found"
    ):
        check_grading(Tasks(dataset=rows))


def count_of(exporter: Exporter, metric: Metric, **labels: str) -> float:
    return exporter.registry.get_sample_value(metric.name, {"run": "test", **labels}) or 0.0


async def test_a_short_answer_to_a_verifier_that_only_computes_waits_for_no_thread() -> None:
    made = GradingThreads(lambda ids: "7|7", Tasks(grading=Grading(processes=1)), Exporter("test"))
    ended = threading.Event()
    busy = asyncio.get_running_loop().run_in_executor(made._threads, ended.wait, 60)
    task = make_task("arithmetic")
    task.reference = json.dumps("7")
    try:
        graded = await asyncio.wait_for(made.grade(task, [0]), 30)
        assert (graded.status, graded.reward) == (GradingStatus.OK, 1.0)
        assert not busy.done()
        # A long one would hold the event loop up.
        long_grading = asyncio.create_task(made.grade(task, [0] * 10_000))
        await asyncio.sleep(0.1)
        assert not long_grading.done()
        ended.set()
        assert (await asyncio.wait_for(long_grading, 30)).reward == 1.0
    finally:
        ended.set()
        await made.close()
