"""The failure table, row by row: the real process is killed or stopped, the run goes on, the books balance."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.services import Redis
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import Claim, Purpose
from rollcast.rollouts.redis_streams import RedisGeneratorQueue, RedisTrainerQueue
from testkit.rollouts.examples import make_group, make_task
from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.harness import System, wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]

LAG = 4
WINDOW_GROUPS = (LAG + 1 - 1) * 8
"""(k + 1 - l) P: the most groups that may be open at the end."""


def check_books(system: System) -> None:
    """Every task once, none forgotten, none too old."""
    lines = system.lines("tasks.jsonl")
    assert check_every_task_once(lines)["open"] <= WINDOW_GROUPS
    check_nothing_was_left_behind(lines, LAG)
    assert max(int(age) for line in system.steps for age in line["staleness_tokens"]) <= LAG


def test_generator_killed(tmp_path: Path, settings: dict[str, Any]) -> None:
    """kill -9 of one of two generators: the run goes on within 15 s, its tasks are redone."""
    settings["budget"] = {"steps": 30}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(lambda: system.last_step >= 4 and joined(system) == 2, 240, "both generators in the run")
        stop_holding_tasks(system, "g1")
        before = system.last_step
        system.kill("g1")
        killed = time.monotonic()
        wait_for(lambda: joined(system) == 1, 15, "the dead generator's removal")
        # Ready groups of the survivor last for the window's four steps; a sixth needs what the dead one held.
        system.wait_step(before + 6, 15 + 30)
        print(f"6 steps {time.monotonic() - killed:.1f} s after the kill")
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
        redone = [line for line in system.lines("tasks.jsonl") if line["what"] == "redone"]
        assert redone, "what the killed generator held is redone"
    check_books(system)


def test_generator_frozen(tmp_path: Path, settings: dict[str, Any]) -> None:
    """SIGSTOP: the same after one deadline; after SIGCONT its answers are refused, and it comes back as a new one."""
    settings["budget"] = {"steps": 45}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(lambda: system.last_step >= 4 and joined(system) == 2, 240, "both generators in the run")
        held = stop_holding_tasks(system, "g1")
        wait_for(lambda: joined(system) == 1, 20, "the frozen generator's removal")
        system.wait_step(system.last_step + 3, 30)
        answer_late(system, held)
        wait_for(lambda: system.groups("refused") >= len(held), 15, "the late answers' refusal on the trainer's books")
        system.signal("g1", signal.SIGCONT)
        wait_for(lambda: joined(system) == 2, 60, "the generator's return as a new one")
        assert system.wait_end(300) == 0, system.log("trainer")[-3000:]
        assert [line for line in system.lines("tasks.jsonl") if line["what"] == "redone"], (
            "what the frozen generator held is redone"
        )
    check_books(system)


def test_generator_drained(tmp_path: Path, settings: dict[str, Any]) -> None:
    """SIGTERM: running work is finished or handed back; nothing starts again, nothing is refused."""
    settings["budget"] = {"steps": 25}
    settings["generator"]["drain_seconds"] = 0
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(lambda: system.last_step >= 4 and joined(system) == 2, 240, "both generators in the run")
        held = stop_holding_tasks(system, "g1")
        system.ended.add("g1")
        system.processes["g1"].terminate()
        system.signal("g1", signal.SIGCONT)
        assert system.processes["g1"].wait(60) == 0, system.log("g1")[-3000:]
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
        lines = system.lines("tasks.jsonl")
    assert [line for line in lines if line["what"] == "redone"] == [], "a drain is no failure"
    settled = {task for line in lines if line["what"] in ("used", "filtered") for task in line["tasks"]}
    assert {task for task, claim in held.items() if claim.purpose is Purpose.TRAIN} <= settled
    check_books(system)


def test_trainer_killed(tmp_path: Path, settings: dict[str, Any]) -> None:
    """kill -9 of the trainer: a new incarnation continues the same curve, generators reconnect by themselves."""
    settings["budget"] = {"steps": 22}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.wait_step(8, 240)
        system.kill("trainer")
        lost = system.last_step
        system.start_trainer(resume=True)
        system.wait_step(lost + 2, 120)
        metrics = system.metrics("trainer")
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
    assert metrics["rollcast_incarnation", ()] == 2
    steps = [line["step"] for line in system.steps]
    assert steps[steps.index(lost) + 1] == 6, "it continued from the checkpoint at step 5"
    assert steps[-1] == 22
    points = system.lines("evaluations.jsonl")
    assert {point["incarnation"] for point in points} == {1, 2}
    compute = [point["compute_device_hours"] for point in points if point["incarnation"] == 2]
    assert compute == sorted(compute)
    check_books(system)


def test_redis_killed(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Redis killed and started again from its append-only file: everybody waits, reconnects, goes on."""
    settings["budget"] = {"steps": 20}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.wait_step(5, 240)
        system.kill("redis")
        time.sleep(3)
        system.start_redis()
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
    assert system.last_step == 20
    check_books(system)


def test_redis_frozen(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Redis away for longer than any silence is allowed: everybody waits, and nobody's work is taken for lost."""
    settings["budget"] = {"steps": 20}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.wait_step(5, 240)
        system.signal("redis", signal.SIGSTOP)
        time.sleep(3.5 * settings["weights"]["heartbeat_timeout_seconds"])
        system.signal("redis", signal.SIGCONT)
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
    assert [line for line in system.lines("tasks.jsonl") if line["what"] in ("redone", "dead")] == []
    check_books(system)


def test_trainer_stopped_and_resumed(tmp_path: Path, settings: dict[str, Any]) -> None:
    """SIGTERM: a checkpoint at the very step, exit code 143; --resume goes on from there; without it: refused."""
    settings["budget"] = {"steps": 14}
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.wait_step(7, 240)
        assert system.terminate("trainer") == 143
        stopped = system.last_step
        system.start_trainer()
        assert system.wait_end(60) == 2
        assert "--resume" in system.log("trainer").splitlines()[-1]
        system.start_trainer(resume=True)
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
    steps = [line["step"] for line in system.steps]
    assert steps == list(range(1, 15)), f"no step was lost or repeated around {stopped}"
    check_books(system)


def joined(system: System) -> float:
    return system.metrics("trainer").get(("rollcast_generators", (("state", "joined"),)), 0.0)


def stop_holding_tasks(system: System, name: str) -> dict[int, Claim]:
    """SIGSTOP a generator at a moment when it holds tasks, so that the fault always costs something; those tasks."""
    queue = RedisTrainerQueue(Redis(port=system.redis_port), system.settings["run"])

    def held_when_stopped() -> dict[int, Claim]:
        system.signal(name, signal.SIGSTOP)
        claims = queue.outstanding().claims
        held = {sequence: claim for sequence, claim in claims.items() if claim.owner.startswith(f"{name}-")}
        if not held:
            system.signal(name, signal.SIGCONT)
        return held

    held: dict[int, Claim] = wait_for(held_when_stopped, 60, f"{name} holding tasks", every=0.03)
    queue.close()
    return held


def answer_late(system: System, held: dict[int, Claim]) -> None:
    """What the frozen generator would send if it woke up in the middle of a publish: wire 1 must not take it."""

    async def publish() -> list[bool]:
        taken = []
        for sequence, claim in held.items():
            queue = RedisGeneratorQueue(Redis(port=system.redis_port), system.settings["run"], claim.owner)
            claimed = Claimed(make_task(sequence, purpose=claim.purpose), claim.stream_id, claim.first_version)
            taken.append(await queue.publish(claimed, make_group(claimed, claim.owner)))
            await queue.close()
        return taken

    assert not any(asyncio.run(publish()))
