"""The failure table, row by row, in one running system: the real process is killed or stopped, and
the run goes on.

Each test makes one fault and waits until the run has got over it; it starts from a system in which
all that it needs is at work, so each can run alone. In this order nobody waits for a new generator:
the one after the killed one starts while the trainer is killed. The last tests read the books over
all faults of the run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.rollouts.codec import decode_group, decode_task
from rollcast.rollouts.records import Purpose
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.faults import count_joined, stop_holding_tasks
from testkit.system.harness import System, wait_for
from testkit.system.recorder import Recorder
from testkit.trainer.states import make_state
from tests.system.conftest import small_settings
from tests.system.faults import answer_late
from tests.system.recording import touched_by_a_fault

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]

LAG = 4
WINDOW_GROUPS = (LAG + 1 - 1) * 8
"""(k + 1 - l) P: the most groups that may be open at the end."""
HEARTBEAT_SECONDS = 6.0
CHECKPOINT_STEPS = 5


@pytest.fixture(scope="module")
def system(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory, programs: ForkedPrograms
) -> Iterator[System]:
    settings = small_settings(model_folder)
    settings["budget"] = {"steps": 100_000}
    settings["generator"]["drain_seconds"] = 0
    settings["weights"]["heartbeat_timeout_seconds"] = HEARTBEAT_SECONDS
    settings["trainer"]["checkpoint_every_steps"] = CHECKPOINT_STEPS
    with System(tmp_path_factory.mktemp("faults"), settings, programs) as system:
        system.start_trainer()
        yield system


@pytest.fixture
def running(system: System) -> System:
    """The system with trainer and a generator at work, whatever the fault before left of it;
    another one starts.
    """
    if system.processes["trainer"].poll() is not None:
        system.start_trainer(resume=True)
    for name in ("g0", "g1"):
        if name not in system.processes or system.processes[name].poll() is not None:
            system.start_generator(name)
    wait_for(lambda: count_joined(system) >= 1, 240, "a generator in the run")
    system.wait_step(max(4, system.last_step + 1), 120)
    return system


@pytest.fixture
def both(running: System) -> System:
    """With both generators at work."""
    wait_for(lambda: count_joined(running) == 2, 240, "both generators in the run")
    running.wait_step(running.last_step + 1, 120)
    return running


@pytest.fixture(scope="module")
def recorder(system: System) -> Recorder:
    """Reads along from the first fault that Redis itself does not suffer."""
    recorder = Recorder(system)
    recorder.start()
    return recorder


def test_redis_frozen(running: System) -> None:
    """Redis away for longer than any silence is allowed: everybody waits, and nobody's work is
    taken for lost.
    """
    before = len(running.lines("tasks.jsonl"))
    running.signal("redis", signal.SIGSTOP)
    time.sleep(3.5 * HEARTBEAT_SECONDS)  # claims that nobody renews are taken back after three
    running.signal("redis", signal.SIGCONT)
    running.wait_step(running.last_step + LAG + 2, 120)
    assert [line for line in since(running, before) if line["what"] in ("redone", "dead")] == []


def test_redis_killed(running: System) -> None:
    """Redis killed and started again from its append-only file: everybody waits, reconnects, goes
    on.
    """
    running.kill("redis")
    time.sleep(3)
    running.start_redis()
    running.wait_step(running.last_step + LAG + 2, 120)


@pytest.mark.usefixtures("recorder")
def test_generator_frozen(both: System) -> None:
    """SIGSTOP: the same after one deadline; after SIGCONT its answers are refused, and it comes
    back as a new one.
    """
    before, refused = len(both.lines("tasks.jsonl")), both.groups("refused")
    held = stop_holding_tasks(both, "g1")
    wait_for(lambda: count_joined(both) == 1, 60, "the frozen generator's removal")
    both.wait_step(both.last_step + 3, 120)
    answer_late(both, held)
    late = refused + len(held)
    wait_for(
        lambda: both.groups("refused") >= late,
        60,
        "the late answers' refusal on the trainer's books",
    )
    both.signal("g1", signal.SIGCONT)
    wait_for(lambda: count_joined(both) == 2, 60, "the generator's return as a new one")
    wait_for(lambda: redone(since(both, before)), 60, "what the frozen generator held to be redone")


@pytest.mark.usefixtures("recorder")
def test_generator_killed(both: System) -> None:
    """kill -9 of one of two generators: the run goes on, its tasks are redone."""
    before = len(both.lines("tasks.jsonl"))
    stop_holding_tasks(both, "g1")
    step = both.last_step
    both.kill("g1")
    killed = time.monotonic()
    wait_for(lambda: count_joined(both) == 1, 60, "the dead generator's removal")
    # Ready groups of the survivor last for the window's four steps; a sixth needs what the dead one
    # held.
    both.wait_step(step + 6, 120)
    print(f"6 steps {time.monotonic() - killed:.1f} s after the kill")
    wait_for(lambda: redone(since(both, before)), 60, "what the killed generator held to be redone")


@pytest.mark.usefixtures("recorder")
def test_trainer_killed(running: System) -> None:
    """kill -9 of the trainer: a new incarnation continues the same curve, generators reconnect by
    themselves.
    """
    wait_for(
        lambda: running.last_step % CHECKPOINT_STEPS == 3,
        60,
        "a step between checkpoints",
        every=0.02,
    )
    running.kill("trainer")
    before, lost = len(running.steps), running.last_step
    running.start_trainer(resume=True)
    running.wait_step(lost + 2, 120)
    assert running.metrics("trainer")["rollcast_incarnation", ()] == 2
    checkpoint = lost - lost % CHECKPOINT_STEPS
    assert running.steps[before]["step"] == checkpoint + 1, "it continued from the last checkpoint"
    # As many evaluations as show that compute goes on where the lost incarnation's checkpoint was.
    wait_for(
        lambda: len(evaluated_by(running, 2)) >= 2, 60, "two evaluations of the new incarnation"
    )
    assert {point["incarnation"] for point in running.lines("evaluations.jsonl")} == {1, 2}
    compute = [point["compute_device_hours"] for point in evaluated_by(running, 2)]
    assert compute == sorted(compute)


@pytest.mark.usefixtures("recorder")
def test_generator_drained(both: System) -> None:
    """SIGTERM: running work is finished or handed back; nothing starts again,
    nothing is refused.
    """
    before = len(both.lines("tasks.jsonl"))
    held = stop_holding_tasks(both, "g1")
    both.stopped_services.add("g1")
    both.processes["g1"].terminate()
    both.signal("g1", signal.SIGCONT)
    assert both.processes["g1"].wait(60) == 0, both.log("g1")[-3000:]
    train = {task for task, claim in held.items() if claim.purpose is Purpose.TRAIN}
    wait_for(lambda: train <= settled(since(both, before)), 60, "an end of every task that it held")
    assert [line for line in since(both, before) if line["what"] == "redone"] == [], (
        "a drain is no failure"
    )


@pytest.mark.usefixtures("recorder")
def test_trainer_stopped_and_resumed_to_the_end(running: System) -> None:
    """SIGTERM: a checkpoint at the very step, exit code 143; --resume goes on from there; without
    it: refused.
    """
    before = len(running.steps)
    assert running.terminate("trainer") == 143
    stopped = running.last_step
    running.start_trainer()
    assert running.wait_end(60) == 2
    assert "--resume" in running.log("trainer").splitlines()[-1]
    end = stopped + 7
    running.config.write_text(yaml.safe_dump(running.settings | {"budget": {"steps": end}}))
    running.start_trainer(resume=True)
    assert running.wait_end(240) == 0, running.log("trainer")[-3000:]
    steps = [line["step"] for line in running.steps[before - 1 :]]
    assert steps == list(range(steps[0], end + 1)), f"no step was lost or repeated around {stopped}"
    assert (running.run_folder / "model" / "model.safetensors").exists()


def test_the_books_balance_over_all_faults(ended: System) -> None:
    """Every task once, none forgotten, none too old."""
    lines = ended.lines("tasks.jsonl")
    assert check_every_task_once(lines)["open"] <= WINDOW_GROUPS
    check_nothing_was_left_behind(lines, LAG)
    assert max(int(age) for line in ended.steps for age in line["staleness_tokens"]) <= LAG


def test_every_token_of_the_newest_weights_is_exact(ended: System) -> None:
    """Over all faults: what was trained on with the weights that sampled it has the generator's
    log-prob.
    """
    fresh = [line for line in ended.steps if list(line["staleness_tokens"]) == ["0"]]
    assert fresh
    assert max(line["logprob_gap_max"] for line in fresh) < 1e-4


def test_not_one_of_its_groups_is_refused_as_defect(ended: System, recorder: Recorder) -> None:
    """Groups that were handed back, redone, and sampled by versions of two incarnations, held
    against every check.
    """
    log = ended.log("trainer")
    assert "unusable group" not in log, "by the running trainer itself"
    assert "unusable entries" not in log
    history = SurvivingHistory((), 1)
    histories = {1: history}
    for line in ended.lines("tasks.jsonl"):
        if line["what"] == "resumed":
            step = PolicyVersion.parse(line["version"]).step
            history = histories[line["incarnation"]] = history.continued_by(
                line["incarnation"], step
            )
    recorded = recorder.finish()
    defects = [
        DefectFinder(
            make_state(history=histories[item.newest.incarnation], published=item.newest),
            vocab_size=10**6,
            max_length=ended.settings["model"]["max_length"],
        ).find(decode_group(item.group), decode_task(item.task))
        for item in recorded
    ]
    assert defects == [None] * len(recorded)
    assert sum(map(touched_by_a_fault, recorded)) > 5


@pytest.fixture
def ended(system: System) -> System:
    """The system after its run, which is stopped here where the tests before it did not come to its
    end.
    """
    if system.processes["trainer"].poll() is None:
        system.terminate("trainer")
    return system


def since(system: System, before: int) -> list[dict[str, Any]]:
    """The lines of tasks.jsonl after the first `before`."""
    return system.lines("tasks.jsonl")[before:]


def settled(lines: list[dict[str, Any]]) -> set[int]:
    return {
        task for line in lines if line["what"] in ("used", "filtered") for task in line["tasks"]
    }


def redone(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"] == "redone"]


def evaluated_by(system: System, incarnation: int) -> list[dict[str, Any]]:
    return [
        point for point in system.lines("evaluations.jsonl") if point["incarnation"] == incarnation
    ]
