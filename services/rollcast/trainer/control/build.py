"""Makes the parts of a controller, each with its own settings, and joins them.

state (of the checkpoint) -> reporter -> intake -> pipeline -> examiner, fleet, checkpoints
                          -> controller
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rollcast.config.distillation import EndpointTeacher
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig
from rollcast.config.services import Generator
from rollcast.config.tasks import Tasks
from rollcast.recipe.schedule import Schedule, make_schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.runfolder.run_secrets import secret_place
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import can_be_trained_on
from rollcast.trainer.control.best_checkpoints import best_checkpoints
from rollcast.trainer.control.checkpoints import Checkpoints
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.evaluation import (
    OpenEvaluations,
    evaluation_plans,
    make_open_evaluations,
)
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import Fleet, OnRemoved
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.number_guard import NumberGuard
from rollcast.trainer.control.pacing import Pacing, longest_other_seconds
from rollcast.trainer.control.pipeline import GroupPipeline
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, Encode, PromptBook, TaskMaker, shares
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState, resume_state
from rollcast.trainer.control.teacher import TeacherClient
from rollcast.trainer.control.telemetry import GroupSignals
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.recorder.step_recorder import StepRecorder
from rollcast.weights.sender.publisher import Publisher


def build_controller(
    config: RunConfig,
    *,
    learners: LearnerGroup,
    queue: TrainerQueue,
    books: Books,
    encode: Encode,
    exporter: Exporter,
    progress: Progress,
    stop_requested: Callable[[], bool],
    end_token_ids: frozenset[int] = frozenset(),
) -> Controller:
    """Take the next incarnation and build its controller, with the progress of the restored
    checkpoint or of a new run.

    `end_token_ids`: tokens that end a text; empty = not known. Raises QueueAway, UserError for bad
    contents of Redis.
    """
    recipe = config.recipe
    schedule = make_schedule(recipe.schedule, groups_per_step=recipe.prompts_per_step)
    max_bytes = config.redis.max_bytes
    plans = evaluation_plans(config.tasks, config.trainer.checkpoint_every_steps)
    state = resume_state(config, queue, shares(books.train, plans[0].weights), progress)
    reporter = Reporter(
        state,
        exporter,
        books.train,
        recipe,
        max_staleness=schedule.max_staleness,
        max_bytes=max_bytes,
    )
    maker = TaskMaker(
        recipe, encode, config.tasks.prompt_format, incarnation=state.incarnation, seed=config.seed
    )
    make_task = partial(_train_task, maker, books.train, state.ledger)
    open_evaluations = make_open_evaluations(config.run, config.tasks)
    group_filter = GroupFilter(recipe)
    is_wanted = partial(can_be_trained_on, recipe=recipe, group_filter=group_filter)
    parts = ControllerParts(config, learners, queue, exporter, state, stop_requested)
    intake = parts.intake(reporter, open_evaluations, make_task, is_wanted, end_token_ids)
    pacing = parts.pacing(schedule.max_staleness)
    pipeline = GroupPipeline(
        state, queue, reporter, schedule, intake, pacing, make_task, recipe, max_bytes, group_filter
    )
    recorder = parts.recorder(pipeline)
    early_stop = (
        EarlyStop(config.stop_when, config.budget, progress.curve) if config.stop_when else None
    )
    evaluation_parts = (maker, plans, open_evaluations, pipeline.send)
    examiner = Examiner(state, queue, reporter, books, *evaluation_parts, early_stop, recorder)
    fleet = parts.fleet(reporter, schedule, intake, pacing)
    learners.choose_best = partial(
        best_checkpoints, progress.curve, state.history, config.trainer.keep_best_checkpoints
    )
    checkpoints = Checkpoints(
        state, learners, intake, reporter, config.trainer.checkpoint_every_steps
    )
    numbers = NumberGuard(state, queue, exporter, recipe.optimizer.max_grad_norm)
    made = (state, pipeline, examiner, fleet, checkpoints, learners, reporter, numbers)
    return Controller(*made, stop_requested, recorder)


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """Makes the parts that need several groups of settings."""

    config: RunConfig
    learners: LearnerGroup
    queue: TrainerQueue
    exporter: Exporter
    state: TrainerState
    stop_requested: Callable[[], bool]

    def intake(
        self,
        reporter: Reporter,
        open_evaluations: OpenEvaluations,
        make_task: Callable[[int, str], PromptTask],
        is_wanted: Callable[[RolloutGroup], bool],
        end_token_ids: frozenset[int],
    ) -> Intake:
        recipe = self.config.recipe
        max_length = self.config.model.max_length
        finder = _defect_finder(
            self.config.tasks, max_length, self.state, self.learners, end_token_ids
        )
        return Intake(
            self.state,
            self.queue,
            open_evaluations,
            self.exporter,
            make_task=make_task,
            count_outcome=reporter.count_group,
            find_defect=finder.find,
            is_filtered=lambda group: recipe.refill_filtered and not is_wanted(group),
            note_arrival=GroupSignals(recipe, self.exporter, is_wanted).note,
            teacher=_teacher(recipe, self.exporter, max_length, is_wanted),
        )

    def recorder(self, pipeline: GroupPipeline) -> StepRecorder | None:
        """The flight recorder; None = `record` is off."""
        config = self.config
        if not config.record.is_on:
            return None
        max_staleness = pipeline.schedule.max_staleness
        return StepRecorder(self.learners, self.exporter, pipeline.find_task, max_staleness)

    def pacing(self, max_staleness: int) -> Pacing:
        config = self.config
        other_seconds = longest_other_seconds(
            config.tasks, config.recipe, config.generator.most_slots, config.longest_grading_seconds
        )
        return Pacing(config.recipe, max_staleness, other_seconds)

    def fleet(
        self, reporter: Reporter, schedule: Schedule, intake: Intake, pacing: Pacing
    ) -> Fleet:
        config = self.config
        return Fleet(
            self.state,
            self.queue,
            reporter,
            schedule,
            intake,
            pacing,
            settings=config.weights,
            devices_each=_devices_each(config.generator, shares_gpu=config.local.shares_gpu),
            is_sharded_over_gpus=self.learners.ranks.are_several_gpus,
            make_publisher=self.publisher,
            stop_requested=self.stop_requested,
        )

    def publisher(self, on_removed: OnRemoved) -> Publisher:
        config = self.config
        return Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=self.state.incarnation,
            history=self.state.history.earlier,
            lm_head=config.recipe.lm_head,
            specs=self.learners.specs,
            device=self.learners.ranks.device,
            exporter=self.exporter,
            on_removed=on_removed,
            slots=self.learners.slots,
            lanes=self.learners.lanes,
            router_replay=config.recipe.router_replay,
            shares_gpu=config.local.shares_gpu,
            secret_place=secret_place(config.run_folder, "rpc.token"),
            rank_store=self.learners.rank_store,
        )


def _defect_finder(
    tasks: Tasks,
    max_length: int,
    state: TrainerState,
    learners: LearnerGroup,
    end_token_ids: frozenset[int],
) -> DefectFinder:
    masking = frozenset(
        environment.name for environment in tasks.environments if environment.masks_sampled_tokens
    )
    return DefectFinder(
        state, learners.vocab_size, max_length, learners.routing, masking, end_token_ids
    )


def _devices_each(generator: Generator, *, shares_gpu: bool) -> int:
    """Devices of one generator. The hours of a shared GPU are counted once, as the trainer's."""
    return 0 if shares_gpu else generator.tensor_parallel


def _teacher(
    recipe: Recipe, exporter: Exporter, max_tokens: int, is_wanted: Callable[[RolloutGroup], bool]
) -> TeacherClient | None:
    """The client of a teacher that is an endpoint; None = there is no teacher, or the ranks hold
    it.
    """
    if recipe.distillation is None or not isinstance(recipe.distillation.teacher, EndpointTeacher):
        return None
    return TeacherClient(
        recipe.distillation.teacher, exporter, max_tokens=max_tokens, is_wanted=is_wanted
    )


def _train_task(
    maker: TaskMaker, prompts: PromptBook, ledger: Ledger, sequence: int, prompt_id: str
) -> PromptTask:
    """A task of the ledger; one that is dispatched again asks for as many rollouts as at first."""
    return maker.make(sequence, prompts[prompt_id], ledger.num_rollouts[sequence], Purpose.TRAIN)
