"""Makes tasks of the curriculum's prompts and sends them over wire 1.

owed prompts, then new draws -> rollouts allocated -> entered in the ledger -> sent
groups that came back -> observe: the prompt's history, which removes and allocates
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from rollcast.config.recipe import Recipe
from rollcast.recipe.allocation import allocated_rollouts
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.pass_rate import verdicts
from rollcast.trainer.control.prompt_book import PromptBook, TaskMaker
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import NEXT_SEQUENCE, TrainerState


class Dispatcher:
    """Makes training tasks and sends tasks of both purposes."""

    def __init__(
        self,
        state: TrainerState,
        queue: TrainerQueue,
        reporter: Reporter,
        prompts: PromptBook,
        maker: TaskMaker,
        *,
        recipe: Recipe,
        max_bytes: int,
    ) -> None:
        """`max_bytes`: of finished groups in Redis; above it nothing is dispatched."""
        self._recipe = recipe
        self._max_bytes = max_bytes
        self._curriculum = state.curriculum
        self._ledger = state.ledger
        self._prompts = prompts
        self._maker = maker
        self._queue = queue
        self._reporter = reporter

    def dispatch(self, count: int, intake: Intake) -> None:
        """Dispatch up to `count` prompts, owed ones first; one batch always may, however full the queue is.

        So may all while nothing is under way: only a step empties the queue then, and the schedule may wait for these.
        """
        queued_bytes = intake.queued_bytes()
        num_outstanding = len(self._ledger.outstanding)
        is_any_under_way = num_outstanding > max(len(intake.ready), self._recipe.prompts_per_step - 1)
        if count and queued_bytes > self._max_bytes and is_any_under_way:
            self._reporter.back_pressure(queued_bytes)
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
        num_rollouts = self._ledger.num_rollouts[sequence]
        return self._maker.make(sequence, self._prompts[prompt_id], num_rollouts, Purpose.TRAIN)

    def send(self, tasks: Sequence[PromptTask]) -> None:
        """Tasks that an outage keeps from being sent are missing at the next reconciliation, and sent then."""
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
