"""Asks for evaluations when they are due, and records their results: the curve, downstream sets,
`stop_when`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import PromptTask, Purpose
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.evaluation import Closed, EvaluationPlan, Moment, OpenEvaluations
from rollcast.trainer.control.progress import add_reading
from rollcast.trainer.control.prompt_book import Books, PromptBook, TaskMaker
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.sample_texts import make_samples_record
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.recorder.step_recorder import StepRecorder


@dataclass(eq=False)
class Examiner:
    _state: TrainerState
    """State whose progress is brought up to date here."""
    _queue: TrainerQueue
    _reporter: Reporter
    _books: Books
    _maker: TaskMaker
    _plans: Sequence[EvaluationPlan]
    """The plan of the main curve comes first."""
    _open_evaluations: OpenEvaluations
    _send: Callable[[Sequence[PromptTask]], None]
    _early_stop: EarlyStop | None
    _recorder: StepRecorder | None
    """Judges the curve as well; None = `record` is off."""

    @property
    def pending(self) -> bool:
        return self._open_evaluations.pending

    @property
    def stop_reason(self) -> str | None:
        """Why `stop_when` ends the run; None = it does not."""
        return self._early_stop.reason if self._early_stop is not None else None

    def is_due(self, *, at_start: bool) -> bool:
        """Whether any is; `at_start`: this incarnation has made no step yet."""
        return bool(self._due(at_start))

    def ask_if_due(self, *, at_start: bool) -> None:
        for plan in self._due(at_start):
            self._ask(plan)

    def _due(self, at_start: bool) -> list[EvaluationPlan]:
        return [
            plan
            for plan in self._plans
            if plan.is_due(
                self._state.progress.step,
                at_start=at_start,
                asked_step=self._open_evaluations.asked_step(plan),
                evaluated_step=self._state.progress.newest_evaluation(plan.dataset),
            )
        ]

    def ask_last(self) -> None:
        """Ask for every evaluation that the final weights did not have yet."""
        for plan in self._plans:
            newest = max(
                self._open_evaluations.asked_step(plan),
                self._state.progress.newest_evaluation(plan.dataset),
            )
            if newest < self._state.progress.step:
                self._ask(plan)

    def close_finished(self, *, generators: bool, away_seconds: float) -> None:
        for closed in self._open_evaluations.close_finished(
            generators=generators, away_seconds=away_seconds
        ):
            self._record(closed)

    def _ask(self, plan: EvaluationPlan) -> None:
        step = self._state.progress.step
        book = self._prompts(plan.dataset)
        ledger = self._state.ledger
        compute = self._state.compute
        tasks = [
            self._maker.make(
                ledger.take_sequence(), item, plan.rollouts_per_prompt, Purpose.EVAL, step
            )
            for item in book.values()
        ]
        moment = Moment(
            incarnation=self._state.incarnation,
            step=step,
            compute_device_hours=compute.total_state,
            start_up_device_hours=compute.total_start_up,
            devices=compute.num_devices,
            trained_tokens=self._state.progress.trained_tokens,
            truncation_ratio=self._reporter.truncation_ratio,
            started_from=step - self._state.steps_since_start,
        )
        self._open_evaluations.ask(plan, moment, tasks)
        self._send(tasks)

    def _record(self, closed: Closed) -> None:
        # Without a result too: otherwise a restart would ask for it again.
        self._state.progress.note_evaluation(closed.dataset, closed.step)
        if closed.evaluation is None:
            self._reporter.evaluation_lost(closed.dataset, closed.step)
        else:
            self._reporter.evaluation(closed.evaluation)
            if closed.dataset == self._plans[0].dataset:
                if self._early_stop is not None:
                    self._early_stop.observe(closed.evaluation)
                else:
                    add_reading(self._state.progress.curve, closed.evaluation)
                if self._recorder is not None:
                    self._recorder.note_evaluation()
        for part_evaluation in closed.parts:
            self._reporter.evaluation(part_evaluation)
        if closed.sampled:
            text = self._prompts(closed.dataset).text
            self._reporter.samples(make_samples_record(closed, self._state.incarnation, text))
        # Generators need not answer them any more.
        self._queue.retire(closed.unanswered)

    def _prompts(self, dataset: str) -> PromptBook:
        return self._books.downstream.get(dataset, self._books.held_out)
