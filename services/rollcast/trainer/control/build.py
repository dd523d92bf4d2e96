"""Wires the parts of a controller. No part knows the controller, and each is given what it needs when it is made.

incarnation (from Redis) -> history
curriculum, ledger (of the checkpoint), compute, reporter: what several parts hold together
dispatcher -> examiner -> intake -> fleet -> publisher, whose maker is handed in: each is given those before it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.data_reuse import reduced
from rollcast.recipe.mixture import MixtureCurriculum, make_curriculum
from rollcast.recipe.schedule import make_schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.keys import Keys
from rollcast.runfolder.files import COMPUTE
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.dispatch import Dispatcher, stored_sequence
from rollcast.trainer.control.evaluation import evaluation_plans
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import Fleet
from rollcast.trainer.control.group_signals import GroupSignals
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing, grading_seconds
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook, TaskMaker, shares
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.sender.publisher import Publisher
from rollcast.wire.version import PolicyVersion

OnRemoved = Callable[[str, str], None]
"""Told of a generator that was removed, and why."""
PublisherMaker = Callable[[SurvivingHistory, OnRemoved], Publisher]
Restored = TypeVar("Restored")
log = get_logger()


def build_controller(
    config: RunConfig,
    *,
    learners: LearnerGroup,
    ranks: Ranks,
    make_publisher: PublisherMaker,
    queue: TrainerQueue,
    books: Books,
    encode: Callable[[str], list[int]],
    exporter: Exporter,
    progress: Progress,
    stop_requested: Callable[[], bool],
) -> Controller:
    """Take the next incarnation and build its controller.

    `make_publisher`: of `trainer.publishing`, which knows the learner. `progress`: of the checkpoint that `learners`
    were restored from, or of a new run. Raises QueueAway where Redis cannot be reached, UserError where what it holds
    cannot be used.
    """
    shared = _share(config, queue, books.train, exporter, progress)
    maker = TaskMaker(config, encode, shared.incarnation)
    dispatcher = _dispatcher(shared, books.train, maker)
    examiner = _examiner(shared, books, maker, dispatcher)
    defects = DefectFinder(
        shared.history,
        learners.vocab_size,
        config.model.max_length,
        newest=shared.version_at_start,
        routing=learners.routing,
    )
    intake = _intake(shared, dispatcher, examiner, defects)
    schedule = make_schedule(config.recipe.schedule, groups_per_step=config.recipe.prompts_per_step)
    pacing = _pacing(config, schedule.lag)
    fleet = _fleet(shared, intake, pacing, stop_requested)
    return Controller(
        config,
        progress=shared.progress,
        checkpoint=_checkpoint_version(progress),
        history=shared.history,
        schedule=schedule,
        curriculum=shared.curriculum,
        ledger=shared.ledger,
        queue=queue,
        dispatcher=dispatcher,
        examiner=examiner,
        defects=defects,
        intake=intake,
        pacing=pacing,
        fleet=fleet,
        compute=shared.compute,
        reporter=shared.reporter,
        exporter=exporter,
        publisher=make_publisher(shared.history, fleet.fence),
        learners=learners,
        ranks=ranks,
        stop_requested=stop_requested,
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    """What several parts hold together."""

    config: RunConfig
    queue: TrainerQueue
    exporter: Exporter
    progress: Progress
    history: SurvivingHistory
    curriculum: Curriculum | MixtureCurriculum
    compute: ComputeLedger
    reporter: Reporter
    ledger: Ledger

    @property
    def incarnation(self) -> int:
        return self.history.incarnation

    @property
    def version_at_start(self) -> PolicyVersion:
        return PolicyVersion(self.incarnation, self.progress.step)


def _share(
    config: RunConfig,
    queue: TrainerQueue,
    prompts: PromptBook,
    exporter: Exporter,
    progress: Progress,
) -> _Shared:
    history = _history(progress, queue.start_incarnation(progress.incarnation + 1))
    curriculum = _curriculum(config, prompts, progress)
    return _Shared(
        config,
        queue,
        exporter,
        progress,
        history,
        curriculum,
        compute=ComputeLedger(config.run_folder / COMPUTE),
        reporter=Reporter(config, exporter, prompts, curriculum),
        ledger=restore_ledger(queue, Keys(config.run, config.redis.scope).state, progress),
    )


def _history(progress: Progress, incarnation: int) -> SurvivingHistory:
    if not progress.is_restored:
        return SurvivingHistory((), incarnation)
    earlier = tuple((number, last) for number, last in progress.earlier)
    return SurvivingHistory(earlier, progress.incarnation).continued_by(incarnation, progress.step)


def _checkpoint_version(progress: Progress) -> PolicyVersion:
    """Step -1 = there is no checkpoint: no version is in it."""
    return PolicyVersion(progress.incarnation, progress.step if progress.is_restored else -1)


def _curriculum(config: RunConfig, prompts: PromptBook, progress: Progress) -> Curriculum | MixtureCurriculum:
    parts = shares(prompts, evaluation_plans(config)[0].weights)
    curriculum = make_curriculum(
        reduced(parts, config.recipe.unique_prompts, seed=config.seed),
        seed=config.seed,
        remove_at=config.recipe.no_positive_resampling,
    )
    if (saved := progress.curriculum) is not None:
        _restored("curriculum", lambda: curriculum.restore(saved))
    return curriculum


def _restored(part: str, restore: Callable[[], Restored]) -> Restored:
    """Raises UserError where the checkpoint holds what no run can have saved."""
    try:
        return restore()
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise UserError(
            f"the checkpoint's {part} is damaged ({type(error).__name__}: {str(error)[:100]}); remove the checkpoint "
            "to resume from an older one"
        ) from error


def restore_ledger(queue: TrainerQueue, state: str, progress: Progress) -> Ledger:
    """The checkpoint's ledger; what a lost history dispatched after it is taken off wire 1. `state`: its key."""
    highest = stored_sequence(queue, state)
    if progress.ledger is None:
        ledger = Ledger(next_sequence=highest)
    else:
        saved = progress.ledger
        ledger = _restored("ledger", lambda: Ledger.restore(saved, at_least=highest))
    queue.remove(list(ledger.held.values()))
    ledger.held.clear()
    lost = queue.outstanding().sequences - ledger.outstanding.keys()
    if lost:
        log.info("tasks dispatched after the checkpoint are taken back", tasks=len(lost))
        queue.retire(sorted(lost))
    return ledger


def _dispatcher(shared: _Shared, prompts: PromptBook, maker: TaskMaker) -> Dispatcher:
    return Dispatcher(
        shared.config,
        curriculum=shared.curriculum,
        prompts=prompts,
        maker=maker,
        ledger=shared.ledger,
        queue=shared.queue,
        reporter=shared.reporter,
    )


def _examiner(shared: _Shared, books: Books, maker: TaskMaker, dispatcher: Dispatcher) -> Examiner:
    return Examiner(
        shared.config,
        incarnation=shared.incarnation,
        held_out=books.held_out,
        downstream=books.downstream,
        maker=maker,
        ledger=shared.ledger,
        queue=shared.queue,
        compute=shared.compute,
        progress=shared.progress,
        reporter=shared.reporter,
        send=dispatcher.send,
    )


def _intake(shared: _Shared, dispatcher: Dispatcher, examiner: Examiner, defects: DefectFinder) -> Intake:
    recipe = shared.config.recipe
    return Intake(
        shared.queue,
        shared.ledger,
        shared.history,
        examiner.open_evaluations,
        shared.exporter,
        make_task=dispatcher.train_task,
        count_outcome=shared.reporter.count_group,
        find_defect=defects.find,
        is_filtered=(lambda group: not assemble([group], recipe).sequences) if recipe.refill_filtered else None,
        note_answer=GroupSignals(recipe, shared.exporter).note,
    )


def _pacing(config: RunConfig, lag: int) -> Pacing:
    return Pacing(
        lag=lag,
        groups_per_step=config.recipe.prompts_per_step,
        token_budget=config.recipe.max_completion_tokens,
        drop_after_budgets=config.trainer.drop_after_budgets,
        grading_seconds=grading_seconds(config),
    )


def _fleet(shared: _Shared, intake: Intake, pacing: Pacing, stop_requested: Callable[[], bool]) -> Fleet:
    return Fleet(
        shared.config,
        queue=shared.queue,
        ledger=shared.ledger,
        intake=intake,
        pacing=pacing,
        compute=shared.compute,
        reporter=shared.reporter,
        stop_requested=stop_requested,
    )
