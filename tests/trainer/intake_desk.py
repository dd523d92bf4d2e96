"""A trainer's intake with a generator on the in-memory twin of wire 1, whose calls may find Redis
away.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rollcast.config.recipe import Recipe
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import (
    LengthBudget,
    PromptTask,
    Purpose,
    RolloutGroup,
    Sampling,
)
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.evaluation import EvaluationPlan, Moment, OpenEvaluations
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.trainer.control.telemetry import GroupSignals
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.trainer.states import make_state


class FlakyQueue:
    """The trainer's end; the n-th call raises QueueAway, before or after it took effect.

    A read whose reply was lost is the queue's own matter: it finds the entries again
    (`tests/rollouts`).
    """

    def __init__(self, queue: MemoryTrainerQueue) -> None:
        self._queue = queue
        self.fail_in = -1
        self.after = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._queue, name)

        def call(*arguments: Any) -> Any:
            self.fail_in -= 1
            if self.fail_in == 0 and (name == "read" or not self.after):
                raise QueueAway("away")
            result = method(*arguments)
            if self.fail_in == 0:
                raise QueueAway("the reply was lost")
            return result

        return call


class Desk:
    """A trainer's intake and a generator, both on one broker."""

    def __init__(self) -> None:
        broker = MemoryBroker()
        self.generator = MemoryGeneratorQueue(broker, "g")
        self.queue = FlakyQueue(MemoryTrainerQueue(broker))
        self.ledger = Ledger()
        self.open_evaluations = OpenEvaluations("r", 60.0)
        self.outcomes: Counter[str] = Counter()
        self.reasons: list[tuple[str, str | None]] = []
        self.exporter = Exporter("r")
        self.intake = Intake(
            make_state(ledger=self.ledger, history=SurvivingHistory(((1, 5),), 2)),
            self.queue,
            self.open_evaluations,
            self.exporter,
            make_task=self.make_task,
            count_outcome=self.count_outcome,
            find_defect=lambda group, *_: "too long" if group.prompt_id == "bad" else None,
            note_arrival=GroupSignals(Recipe(), self.exporter).note,
        )

    def count_outcome(
        self, outcome: str, sequence: int, prompt_id: str, reason: str | None
    ) -> None:
        self.outcomes[outcome] += 1
        self.reasons.append((outcome, reason))

    def make_task(
        self, sequence: int, prompt_id: str, purpose: Purpose = Purpose.TRAIN
    ) -> PromptTask:
        return PromptTask(
            sequence=sequence,
            incarnation=2,
            purpose=purpose,
            dataset="d",
            prompt_id=prompt_id,
            prompt_token_ids=np.ones(3, np.int32),
            num_rollouts=2,
            sampling=Sampling(),
            length=LengthBudget(8),
            verifier="exact",
            reference='""',
        )

    def dispatch(self, *prompt_ids: str) -> None:
        self.queue.dispatch(
            [
                self.make_task(self.ledger.dispatch(prompt_id, 2), prompt_id)
                for prompt_id in prompt_ids
            ]
        )

    def ask(self, *prompt_ids: str) -> None:
        tasks = [
            self.make_task(self.ledger.take_sequence(), prompt_id, Purpose.EVAL)
            for prompt_id in prompt_ids
        ]
        self.open_evaluations.ask(
            EvaluationPlan("d", 1, 2), Moment(2, 1, 0.0, 0.0, 2, 0, None, 0), tasks
        )
        self.queue.dispatch(tasks)

    async def answer(self, version: PolicyVersion) -> list[Claimed]:
        claimed = await self.generator.claim(
            train=9, evals=9, first_version=lambda: version, block_seconds=0.0
        )
        for one in claimed:
            assert await self.generator.publish(one, wrong_answer(one, version))
        return claimed

    def turn(self) -> None:
        """One turn of the trainer's loop; an outage ends it."""
        try:
            self.intake.collect(0.0)
            self.intake.reconcile()
        except QueueAway:
            pass


def wrong_answer(claimed: Claimed, version: PolicyVersion) -> RolloutGroup:
    rollouts = [make_graded_rollout(index, 0.0, version, length=4) for index in range(2)]
    return make_answer_group(
        claimed.task, rollouts, incarnation=2, dataset="d", first_version=version
    )
