"""`rollcast queue`: each state, action and refusal, with a real Redis and a run folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.runfolder.event_log import read_events
from rollcast.runfolder.records import TaskMark, as_json
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.servers import Server, find_server
from tests.cli.command import refusal, rollcast
from tests.cli.run_folders import settings, write


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(find_server("7"), tmp_path)
    server.start()
    yield server
    server.stop()


def queued_run(tmp_path: Path, server: Server) -> tuple[RunConfig, RedisTrainerQueue]:
    """Task 0 is finished, 1 claimed, 2 waits and 3 has failed three times."""
    config = settings(tmp_path).model_copy(update={"redis": server.settings})
    write_resolved(config, config.run_folder / "run.json")
    marks = [
        TaskMark("dispatched", at=1.0, tasks=[0, 1, 2, 3, 7]),
        TaskMark("redone", at=2.0, tasks=[7], reason="overdue"),
        TaskMark("filtered", at=3.0, tasks=[7], reason="every answer right"),
    ]
    write(config.run_folder, "tasks.jsonl", [as_json(mark) for mark in marks])
    trainer = RedisTrainerQueue(config.redis, config.run)

    async def sample() -> None:
        generator = RedisGeneratorQueue(config.redis, config.run, "generator-0")

        async def claim() -> Any:
            (claimed,) = await generator.claim(
                train=1, evals=0, first_version=lambda: VERSION, block_seconds=0
            )
            return claimed

        trainer.dispatch([make_task(0)])
        claimed = await claim()
        await generator.publish(claimed, make_group(claimed, "generator-0"))
        trainer.dispatch([make_task(3)])
        for _ in range(3):
            await generator.fail(await claim(), "its grader \x1b[31mhangs\ntask 3: waiting")
        trainer.dispatch([make_task(1)])
        await claim()
        trainer.dispatch([make_task(2)])
        with server.client() as client:
            client.xadd(Keys(config.run).dead, {"x": "foreign"}, id="18446744073709551610-1")
        await generator.close()

    asyncio.run(sample())
    return config, trainer


def said(*arguments: object) -> str:
    answered = rollcast("queue", *arguments)
    assert answered.returncode == 0, answered.stderr
    return answered.stdout


def test_a_queue_shows_its_tasks_and_why_others_left_it(tmp_path: Path, server: Server) -> None:
    config, trainer = queued_run(tmp_path, server)
    shown = said(config.run_folder)
    assert "\n1 waiting, 1 claimed, 1 finished, 1 dead\n" in shown
    assert "claimed, train, 0 failures, by generator-0 for " in shown
    assert "its grader" in shown
    assert "\x1b" not in shown, "a terminal obeys nothing of it"
    assert [line.split() for line in shown.splitlines() if "every answer" in line] == [
        ["filtered", "1", "every", "answer", "right"]
    ]
    shown = said(config.run_folder, "--task", 3)
    assert [line[:13] for line in shown.splitlines() if line.startswith("task")] == [
        "task 3: dead,"
    ]
    assert said(config.run_folder, "--task", 7).splitlines()[0] == "task 7 is not on the queue"
    assert said(config.run_folder, "--task", 7).splitlines()[2].endswith(" redone: overdue")
    report = json.loads(said(config.run_folder, "--json"))
    assert {row["task"]: row["state"] for row in report["tasks"]} == {
        0: "finished",
        1: "claimed",
        2: "waiting",
        3: "dead",
    }
    assert report["tasks"][1]["generator"] == "generator-0"
    assert report["dead_entries"][1]["reason"] == report["tasks"][3]["reason"]
    assert {"outcome": "redone", "tasks": 1, "reason": "overdue"} in report["outcomes"]
    run_file = tmp_path / "on-a-cluster.json"
    write_resolved(config, run_file)
    assert json.loads(said(run_file, "--json"))["tasks"][0] == report["tasks"][0]
    local_file = tmp_path / "local.yaml"  # its server says in the run folder where it listens
    for redis in ("", "redis: {port: 0}"):
        local_file.write_text(f"run: mine\nfolder: {tmp_path}\nmodel: {{path: m}}\n{redis}\n")
        assert json.loads(said(local_file, "--json"))["tasks"][0] == report["tasks"][0]
    (config.run_folder / "run.json").unlink()
    assert f"RUN = {config.run_folder}: holds no run.json" in refusal("queue", str(local_file))
    trainer.close()


def test_an_action_changes_one_task_or_says_why_not(tmp_path: Path, server: Server) -> None:
    config, trainer = queued_run(tmp_path, server)
    folder = str(config.run_folder)
    for arguments, sentence in (
        (("--requeue", "0"), "the task is finished; requeue needs one that is claimed or dead"),
        (("--requeue", "2"), "the task is waiting; requeue needs one that is claimed or dead"),
        (("--bury", "3"), "the task is dead; bury needs one that is waiting or claimed"),
        (("--bury", "7"), "the queue of run mine has no such task: it is settled, or was never"),
        (("--bury", "1"), "s ago; give --take too to take the task from it"),
    ):
        assert sentence in refusal("queue", folder, *arguments)
    assert "waits again. It was claimed by generator-0" in said(folder, "--requeue", 1, "--take")
    assert "buried" in said(folder, "--bury", 2, "--reason", "its prompt is broken")
    assert "that has not settled it dispatches it again" in said(folder, "--requeue", 3)
    outstanding = trainer.outstanding()
    assert set(outstanding.waiting) == {1}
    assert {task: dead.reason for task, dead in outstanding.dead.items()} == {
        2: "buried by an operator: its prompt is broken"
    }
    answered = json.loads(said(folder, "--bury", 1, "--json"))
    assert answered == {"task": 1, "action": "bury", "found": "waiting", "generator": None}
    assert [event.line for event in read_events(config.run_folder)] == [
        f"an operator gave --{action} {task} to `rollcast queue`"
        for action, task in (("requeue", 1), ("bury", 2), ("requeue", 3), ("bury", 1))
    ]
    trainer.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--task", "1", "--bury", "1"), "--task, --requeue, --bury: exclude one another"),
        (("--reason", "x"), "--reason: belongs to --bury"),
        (("--take", "--task", "1"), "--take: belongs to --requeue and --bury"),
        (("--bury", "1", "--reason", "x" * 301), "--reason: has 301 characters; give 300"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refusal("queue", str(tmp_path), *arguments)


def test_without_its_redis_a_run_shows_its_folder_and_an_action_fails(
    tmp_path: Path, server: Server
) -> None:
    config, trainer = queued_run(tmp_path, server)
    trainer.close()
    server.kill()
    shown = rollcast("queue", config.run_folder, "--json")
    assert shown.returncode == 0
    assert f"127.0.0.1:{server.port}: Redis took no command for 1 s" in shown.stderr
    report = json.loads(shown.stdout)
    assert (report["redis"], report["tasks"]) == (None, [])
    assert report["outcomes"][0]["reason"] == "every answer right"
    failed = rollcast("queue", config.run_folder, "--bury", 1)
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert "whether task 1 was changed is not known" in failed.stderr
