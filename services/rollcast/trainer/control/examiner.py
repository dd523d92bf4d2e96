"""Asks for evaluations when they are due, and takes down what they say: the curve, downstream sets, `stop_when`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rollcast.config.run import RunConfig
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import PromptTask
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.evaluation import Closed, EvaluationPlan, Moment, OpenEvaluations, evaluation_plans
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import PromptBook, TaskMaker
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.samples import sampled


class Examiner:
    """The trainer's side of the evaluations."""

    def __init__(
        self,
        config: RunConfig,
        *,
        incarnation: int,
        held_out: PromptBook,
        downstream: Mapping[str, PromptBook],
        maker: TaskMaker,
        ledger: Ledger,
        queue: TrainerQueue,
        compute: ComputeLedger,
        progress: Progress,
        reporter: Reporter,
        send: Callable[[Sequence[PromptTask]], None],
    ) -> None:
        """`downstream`: prompts by the label of their evaluations. `progress` is brought up to date here."""
        self._incarnation = incarnation
        self._held_out = held_out
        self._downstream = downstream
        self._maker = maker
        self._ledger = ledger
        self._queue = queue
        self._compute = compute
        self._progress = progress
        self._reporter = reporter
        self._send = send
        self._plans = evaluation_plans(config)
        self._early_stop = EarlyStop(config.stop_when, config.budget, progress.curve) if config.stop_when else None
        self.open_evaluations = OpenEvaluations(config.run, config.tasks.evaluation.deadline_seconds)

    @property
    def pending(self) -> bool:
        """Answers are still waited for."""
        return self.open_evaluations.pending

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
                self._progress.step,
                at_start=at_start,
                asked=self.open_evaluations.asked_step(plan),
                evaluated=self._progress.newest_evaluation(plan.dataset),
            )
        ]

    def ask_last(self) -> None:
        """Ask for what the final weights were not asked yet."""
        for plan in self._plans:
            newest = max(self.open_evaluations.asked_step(plan), self._progress.newest_evaluation(plan.dataset))
            if newest < self._progress.step:
                self._ask(plan)

    def close_finished(self, *, generators: bool, away_seconds: float) -> None:
        """Take down the evaluations that are complete or out of time; arguments as `OpenEvaluations.close_finished`."""
        for closed in self.open_evaluations.close_finished(generators=generators, away_seconds=away_seconds):
            self._take_down(closed)

    def _ask(self, plan: EvaluationPlan) -> None:
        step, book = self._progress.step, self._downstream.get(plan.dataset, self._held_out)
        tasks = [
            self._maker.evaluation(self._ledger.take_sequence(), book[prompt_id], plan.rollouts_per_prompt, step)
            for prompt_id in book.ids
        ]
        moment = Moment(
            incarnation=self._incarnation,
            step=step,
            compute_device_hours=self._compute.total_state,
            start_up_device_hours=self._compute.total_start_up,
            devices=self._compute.num_devices,
            trained_tokens=self._progress.trained_tokens,
            truncation_ratio=self._reporter.truncation_ratio,
            started_from=self._reporter.started_from,
        )
        self.open_evaluations.ask(plan, moment, tasks)
        self._send(tasks)

    def _take_down(self, closed: Closed) -> None:
        self._progress.note_evaluation(closed.dataset, closed.step)
        if closed.evaluation is None:
            self._reporter.evaluation_lost(closed.dataset, closed.step)
        else:
            self._reporter.evaluation(closed.evaluation)
            if self._early_stop is not None and closed.dataset == self._plans[0].dataset:
                self._early_stop.observe(closed.evaluation)
        for part in closed.parts:
            self._reporter.evaluation(part)
        book = self._downstream.get(closed.dataset, self._held_out)
        if closed.sampled:
            self._reporter.samples(sampled(closed, self._incarnation, book.text))
        self._queue.retire(closed.unanswered)
