"""The controller's loop with answers that nobody asked for, and with garbage on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.config.connections import Redis
from rollcast.config.errors import UserError
from rollcast.rollouts.base import MAX_FAILURES
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import Rollout, RolloutGroup, VersionSpan
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import NEXT_SEQUENCE
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker, MemoryTrainerQueue
from testkit.rollouts.servers import Server, find_server
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    answer_everything,
    lines,
    make_config,
    make_controller,
    read_group_count,
    run,
)

Spoil = Callable[[RolloutGroup], RolloutGroup]
FUTURE = PolicyVersion(1, 900)


def every_rollout(**changes: Any) -> Spoil:
    def spoil(group: RolloutGroup) -> RolloutGroup:
        return dataclasses.replace(
            group, rollouts=[dataclasses.replace(item, **changes) for item in group.rollouts]
        )

    return spoil


def a_thousand(group: RolloutGroup) -> RolloutGroup:
    rollouts: list[Rollout] = [
        dataclasses.replace(group.rollouts[0], index=index) for index in range(1000)
    ]
    return dataclasses.replace(group, rollouts=rollouts)


class SpoilingQueue(AnsweringQueue):
    """The first answer to the task 5 (after `first`), and every answer to the task 6, is spoilt."""

    def __init__(
        self, broker: MemoryBroker, answers: Answers, spoil: Spoil, first: int = 0
    ) -> None:
        super().__init__(broker, answers)
        self._spoil = spoil
        self._once, self._always = first + 5, first + 6

    def read(self, max_groups: int, block_seconds: float) -> Any:
        def spoil(group: RolloutGroup) -> RolloutGroup:
            is_spoilt = group.sequence == self._always or (group.sequence, group.attempt) == (
                self._once,
                0,
            )
            return self._spoil(group) if is_spoilt else group

        asyncio.run(answer_everything(self._generator, self._answers, spoil=spoil))
        return MemoryTrainerQueue.read(self, max_groups, 0.0)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(every_rollout(reward=1e30), id="reward"),
        pytest.param(every_rollout(logprobs=np.full(3, 80.0, np.float32)), id="log-probability"),
        pytest.param(
            every_rollout(version_spans=(VersionSpan(FUTURE, 0, 3),)), id="version of the future"
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, started_at=-1e308, finished_at=1e308),
            id="times",
        ),
        pytest.param(a_thousand, id="thousand rollouts"),
        pytest.param(lambda group: dataclasses.replace(group, prompt_id="p3"), id="another prompt"),
        pytest.param(
            lambda group: dataclasses.replace(group, prompt_id="unheard of"), id="unknown prompt"
        ),
        pytest.param(
            lambda group: dataclasses.replace(group, prompt_token_ids=np.full(2, 7, np.int32)),
            id="other tokens",
        ),
    ],
)
def test_what_nobody_asked_for_is_never_trained_on(tmp_path: Path, spoil: Spoil) -> None:
    config, broker = make_config(tmp_path, steps=8), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(2))
    controller = make_controller(
        config, SpoilingQueue(broker, answers, spoil), answers, QuickLearners()
    )
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert read_group_count(controller, "defective") == 1 + MAX_FAILURES
    outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
    assert outcomes["dead"] == 1, "the task that nobody answered well"
    used = {
        task
        for line in lines(config, "tasks.jsonl")
        if line["what"] in ("used", "filtered")
        for task in line["tasks"]
    }
    assert 5 in used, "it was asked again"


def never_was(group: RolloutGroup) -> RolloutGroup:
    """Begun by weights of the checkpoint at step 6 and, it says, ended by those of a step before
    it.
    """
    spoilt = every_rollout(version_spans=(VersionSpan(PolicyVersion(2, 0), 0, 3),))(group)
    return dataclasses.replace(spoilt, first_version=PolicyVersion(1, 6))


def test_a_version_from_before_its_incarnation_is_refused(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=14), MemoryBroker()
    answers, learners = Answers(0.5, PolicyVersion(1, 0), random.Random(3)), QuickLearners()
    first = make_controller(config, AnsweringQueue(broker, answers), answers, learners)
    assert run(first, answers, limit=6) is TrainerEnding.INTERRUPTED
    progress = Progress.from_json(learners.saved["1.6"])
    first_sequence = int(MemoryTrainerQueue(broker).get_state(NEXT_SEQUENCE) or 0)
    queue = SpoilingQueue(broker, answers, never_was, first_sequence)
    second = make_controller(config, queue, answers, learners, progress=progress)
    assert run(second, answers) is TrainerEnding.FINISHED
    assert read_group_count(second, "defective") == 1 + MAX_FAILURES


@pytest.mark.parametrize("text", [b"junk", b"-3", b"", b"9" * 15])
def test_a_damaged_next_sequence_is_told_in_a_sentence(tmp_path: Path, text: bytes) -> None:
    """Sequences must not go back: a late answer to an old task would be taken for one to a new."""
    queue = MemoryTrainerQueue(MemoryBroker())
    queue.set_state(NEXT_SEQUENCE, text)
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(3))
    with pytest.raises(UserError, match=r"trainer:next_sequence in .* not a sequence; set it"):
        make_controller(make_config(tmp_path, steps=3), queue, answers, QuickLearners())


class RedisAnsweringQueue(RedisTrainerQueue):
    """Before each read somebody writes garbage, and a generator answers everything that waits."""

    def __init__(self, settings: Redis, answers: Answers) -> None:
        super().__init__(settings, "r")
        self._settings = settings
        self._answers = answers

    def read(self, max_groups: int, block_seconds: float) -> Any:
        throw_garbage(self._settings, self._answers.rng)
        asyncio.run(self._answer())
        return super().read(max_groups, 0.0)

    async def _answer(self) -> None:
        generator = RedisGeneratorQueue(self._settings, "r", "g")
        await answer_everything(generator, self._answers)
        await generator.close()


def throw_garbage(settings: Redis, rng: random.Random) -> None:
    """About tasks under way, and about tasks that never were."""
    keys = Keys("r")
    with Server("", Path(), port=settings.port).client() as raw:
        known = [*raw.hkeys(keys.inflight), b"999999999999", b"junk"]
        entry = {
            "s": rng.choice(known),
            "a": "0",
            "p": "train",
            "v": "1.0",
            "o": "x",
            "t": "0-1",
            "d": rng.randbytes(9),
        }
        entry |= {
            rng.choice(list(entry)): rng.choice(
                [b"garbage", b"two words", rng.randbytes(5), b"9" * 40]
            )
        }
        raw.xadd(rng.choice([keys.rollouts, keys.tasks, keys.evals]), entry)
        raw.hset(
            keys.inflight,
            rng.choice(known),
            rng.choice([b"waiting", b"finished 0 train x y", rng.randbytes(9)]),
        )


def test_a_run_goes_on_and_resumes_among_garbage(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=9)
    server = Server(find_server("6.2"), tmp_path)
    server.start()
    try:
        answers, learners = Answers(0.5, PolicyVersion(1, 0), random.Random(4)), QuickLearners()
        first = make_controller(
            config, RedisAnsweringQueue(server.settings, answers), answers, learners
        )
        first._reporter.record_start()
        assert run(first, answers, limit=5) is TrainerEnding.INTERRUPTED
        first.close()
        throw_garbage(server.settings, answers.rng)
        progress = Progress.from_json(learners.saved["1.5"])
        queue = RedisAnsweringQueue(server.settings, answers)
        second = make_controller(config, queue, answers, learners, progress=progress)
        second._reporter.record_start()
        assert run(second, answers) is TrainerEnding.FINISHED
        outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
        assert set(outcomes) <= {"used", "filtered", "open"}, "no good task was lost to a bad entry"
        assert queue.unreadable() > 9
        second.close()
    finally:
        server.stop()
