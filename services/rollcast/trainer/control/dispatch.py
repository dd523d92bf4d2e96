"""From the curriculum's prompts to tasks on wire 1.

owed prompts, then new draws -> rollouts allocated -> entered in the ledger -> sent
what came back -> observe: the prompt's history, which removes and allocates
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.recipe.allocation import allocated_rollouts
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.mixture import MixtureCurriculum
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import PromptTask, RolloutGroup
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pass_rate import verdicts
from rollcast.trainer.control.prompt_book import PromptBook, TaskMaker
from rollcast.trainer.control.reporting import Reporter

NEXT_SEQUENCE = "next_sequence"
"""Key of wire 1's state: no sequence is given out twice, whatever checkpoint a restart begins from."""

MOST_DIGITS = 14
"""A sequence on wire 1 has at most 15."""


def stored_sequence(queue: TrainerQueue, state: str) -> int:
    """The first sequence that was never given out, as wire 1 knows it. Raises UserError where that is no number.

    state: the key that holds it, for the sentence.
    """
    text = queue.get_state(NEXT_SEQUENCE)
    if text is None:
        return 0
    if not text.isdigit() or len(text) > MOST_DIGITS:
        raise UserError(
            f"redis: trainer:{NEXT_SEQUENCE} in {state} is {text[:200]!r}, not a sequence; "
            "set it (HSET) to one more than the highest task in the run's tasks.jsonl"
        )
    return int(text)


class Dispatcher:
    """Makes training tasks and sends tasks of both purposes."""

    def __init__(
        self,
        config: RunConfig,
        *,
        curriculum: Curriculum | MixtureCurriculum,
        prompts: PromptBook,
        maker: TaskMaker,
        ledger: Ledger,
        queue: TrainerQueue,
        reporter: Reporter,
    ) -> None:
        self._recipe = config.recipe
        self._max_bytes = config.redis.max_bytes
        self._curriculum = curriculum
        self._prompts = prompts
        self._maker = maker
        self._ledger = ledger
        self._queue = queue
        self._reporter = reporter

    @property
    def is_exhausted(self) -> bool:
        """No prompt is left to be dispatched."""
        return self._curriculum.is_exhausted and not self._ledger.owed

    def dispatch(self, count: int, intake: Intake) -> None:
        """Dispatch up to `count` prompts, owed ones first; one batch always may, however full the queue is.

        So may all while nothing is under way: only a step empties the queue then, and the schedule may wait for these.
        """
        queued, outstanding = intake.queued_bytes(), len(self._ledger.outstanding)
        under_way = outstanding > max(len(intake.ready), self._recipe.prompts_per_step - 1)
        if count and queued > self._max_bytes and under_way:
            self._reporter.back_pressure(queued, self._max_bytes)
            return
        owed = self._ledger.take_owed(count)
        drawn = (self._curriculum.draw() for _ in range(count - len(owed)))
        prompt_ids = [*owed, *(prompt_id for prompt_id in drawn if prompt_id is not None)]
        numbers = allocated_rollouts(self._recipe, [self._curriculum.counts(prompt_id) for prompt_id in prompt_ids])
        tasks = [
            self.train_task(self._ledger.dispatch(prompt_id, number), prompt_id)
            for prompt_id, number in zip(prompt_ids, numbers, strict=True)
        ]
        for task in tasks:
            self._ledger.note_dispatch(task)
        self._reporter.count_dispatched(tasks)
        self.send(tasks)

    def train_task(self, sequence: int, prompt_id: str) -> PromptTask:
        """A task of the ledger; one that is dispatched again asks for as many rollouts as at first."""
        return self._maker.train(sequence, self._prompts[prompt_id], self._ledger.num_rollouts.get(sequence))

    def send(self, tasks: Sequence[PromptTask]) -> None:
        """What an outage keeps from being sent is missing at the next reconciliation, and sent then."""
        if tasks:
            with suppress(QueueAway):
                self._queue.set_state(NEXT_SEQUENCE, str(self._ledger.next_sequence).encode())
                self._queue.dispatch(tasks)

    def observe(self, groups: Iterable[RolloutGroup]) -> None:
        """Every training group that came back counts in its prompt's history, filtered or not; once each."""
        for group in groups:
            rewards = verdicts(group.rollouts)
            self._curriculum.observe(
                group.prompt_id, reward=sum(rewards), graded=len(rewards), sampled=len(group.rollouts)
            )
