"""Parts of the controller made one by one, and what `build_controller` joins."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollcast.config.connections import Weights
from rollcast.config.recipe import Recipe
from rollcast.rollouts.base import Claimed
from rollcast.runfolder.event_log import read_events
from rollcast.trainer.control import fleet as fleet_module
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.fleet import Fleet
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import TrainerState, restore_ledger
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_group, make_task
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.trainer.quick_control import Answers, QuickLearners, make_config, make_controller
from testkit.trainer.states import make_state


def claim_all(broker: MemoryBroker, owner: str) -> list[Claimed]:
    generator = MemoryGeneratorQueue(broker, owner)
    return asyncio.run(
        generator.claim(train=8, evals=0, first_version=lambda: VERSION, block_seconds=0.0)
    )


def make_fleet(
    state: TrainerState, queue: MemoryTrainerQueue, counted: list[tuple[str, int, str, str]]
) -> Fleet:
    """Without generators; `counted` is told what is redone."""
    reporter: Any = SimpleNamespace(
        count_group=lambda *what: counted.append(what), no_generator=lambda: None
    )
    schedule: Any = None
    intake: Any = SimpleNamespace(snapshot=queue.outstanding())
    publisher: Any = SimpleNamespace(members=list)
    return Fleet(
        state,
        queue,
        reporter,
        schedule,
        intake,
        Pacing(Recipe(prompts_per_step=4, max_completion_tokens=8), 3),
        stop_requested=lambda: False,
        devices_each=1,
        settings=Weights(),
        is_sharded_over_gpus=False,
        make_publisher=lambda on_removed: publisher,
    )


def test_a_ledger_takes_back_what_was_dispatched_after_its_checkpoint() -> None:
    broker = MemoryBroker()
    queue = MemoryTrainerQueue(broker)
    queue.dispatch([make_task(sequence) for sequence in (3, 4, 5)])
    queue.set_state("next_sequence", b"6")
    kept = Ledger(next_sequence=4, outstanding={3: "prompt-3"}, num_rollouts={3: 2})
    ledger = restore_ledger(queue, "state", Progress(step=2, incarnation=1, ledger=kept))
    assert (ledger.outstanding, ledger.next_sequence) == ({3: "prompt-3"}, 6)
    assert queue.outstanding().sequences == {3}


def test_a_fleet_by_itself_gives_the_tasks_of_a_removed_generator_to_others(tmp_path: Path) -> None:
    broker, counted = MemoryBroker(), list[tuple[str, int, str, str]]()
    queue = MemoryTrainerQueue(broker)
    queue.dispatch([make_task(1), make_task(2)])
    claim_all(broker, "g")
    state = make_state(tmp_path, ledger=Ledger(outstanding={1: "prompt-1", 2: "prompt-2"}))
    fleet = make_fleet(state, queue, counted)
    fleet.fence("g", "silent")
    assert counted == [
        ("redone", number, f"prompt-{number}", "g was removed: silent") for number in (1, 2)
    ]
    assert [claimed.task.attempt for claimed in claim_all(broker, "other")] == [1, 1]
    member = SimpleNamespace(
        name="h", joined=True, allocated_since=time.monotonic(), decode_tokens_per_second=0.0
    )
    members: Any = SimpleNamespace(members=lambda: [member])
    fleet.publisher = members
    fleet.watch()
    fleet.watch()
    fleet.fence("h", "left")
    assert [(event.line, event.trouble) for event in read_events(tmp_path)] == [
        ("g was removed: silent", True),
        ("h joined", False),
        ("h left", False),
    ]


def test_claims_are_not_swept_while_nobody_could_have_renewed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis was away for long: owners have a whole silence from its return on, and no longer."""
    now = 1_000.0
    monkeypatch.setattr(
        fleet_module, "time", SimpleNamespace(time=lambda: now, monotonic=lambda: now)
    )
    broker, counted = MemoryBroker(clock=lambda: now), list[tuple[str, int, str, str]]()
    queue = MemoryTrainerQueue(broker)
    silence = Weights().max_claim_silence_seconds
    fleet = make_fleet(
        make_state(tmp_path, ledger=Ledger(outstanding={1: "prompt-1"})), queue, counted
    )
    queue.dispatch([make_task(1)])
    claim_all(broker, "g")
    now += 10 * silence
    queue.away_seconds += 10 * silence
    for passed, swept in (
        (0.0, []),
        (0.9, []),
        (0.3, [("redone", 1, "prompt-1", "its owner was silent")]),
    ):
        now += passed * silence
        assert fleet.watch() == (0.0 if passed else 10 * silence)
        assert counted == swept


def test_a_version_is_no_defect_once_it_is_published() -> None:
    task = make_task(1)
    group = make_group(Claimed(task, "1-0", VERSION), "g")
    before = PolicyVersion(VERSION.incarnation, VERSION.step - 1)
    state = make_state(published=before)
    finder = DefectFinder(state, vocab_size=1_000, max_length=64)
    assert "the newest published is 1.6" in str(finder.find(group, task))
    state.published = VERSION
    assert finder.find(group, task) is None


def test_a_controller_tells_its_parts_of_removals_and_of_versions(tmp_path: Path) -> None:
    broker = MemoryBroker()
    queue, answers = MemoryTrainerQueue(broker), Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(make_config(tmp_path, steps=1), queue, answers, QuickLearners())
    controller._pipeline.dispatch(2)
    assert len(claim_all(broker, "g")) == 2
    controller._publisher._removals._on_removed("g", "silent")
    assert sorted(queue.outstanding().waiting) == [0, 1]
    controller.state.progress.step = 5
    assert controller.state.published == PolicyVersion(1, 0)
    controller._publish()
    assert controller.state.published == PolicyVersion(1, 5)
