"""Makes the parts of a controller, each with its own settings, and joins them.

state (of the checkpoint) -> reporter -> intake -> pipeline -> examiner, fleet, checkpoints
                          -> controller
"""

from collections.abc import Callable
from functools import partial

from rollcast.config.distillation import EndpointTeacher
from rollcast.config.run import RunConfig
from rollcast.recipe.schedule import Schedule, make_schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.runfolder.run_secrets import secret_place
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import can_be_trained_on
from rollcast.trainer.control.checkpoints import Checkpoints
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.evaluation import evaluation_plans, make_open_evaluations
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import Fleet, OnRemoved
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing, longest_other_seconds
from rollcast.trainer.control.pipeline import GroupPipeline
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, Encode, PromptBook, TaskMaker, shares
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState, resume_state
from rollcast.trainer.control.teacher import TeacherClient
from rollcast.trainer.control.telemetry import GroupSignals
from rollcast.trainer.learner.group import LearnerGroup
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

    `end_token_ids`: empty = not known. Raises QueueAway, UserError for bad contents of Redis.
    """
    recipe = config.recipe
    schedule = make_schedule(recipe.schedule, groups_per_step=recipe.prompts_per_step)
    max_bytes = config.redis.max_bytes
    checkpoint_every = config.trainer.checkpoint_every_steps
    plans = evaluation_plans(config.tasks, checkpoint_every)
    state = resume_state(config, queue, shares(books.train, plans[0].weights), progress)
    reporter = Reporter(state, exporter, books.train, recipe, schedule.max_staleness, max_bytes)
    maker = TaskMaker(
        recipe, encode, config.tasks.prompt_format, incarnation=state.incarnation, seed=config.seed
    )
    make_task = partial(_train_task, maker, books.train, state.ledger)
    open_evaluations = make_open_evaluations(config.run, config.tasks)
    group_filter = GroupFilter(recipe)
    is_wanted = partial(can_be_trained_on, recipe=recipe, group_filter=group_filter)
    intake = Intake(
        state,
        queue,
        open_evaluations,
        exporter,
        make_task,
        reporter.count_group,
        _defect_finder(config, state, learners, end_token_ids).find,
        lambda group: recipe.refill_filtered and not is_wanted(group),
        GroupSignals(recipe, exporter, is_wanted).note,
        _teacher(config, exporter, is_wanted),
    )
    pacing = Pacing(recipe, schedule.max_staleness, longest_other_seconds(config))
    pipeline = GroupPipeline(
        state, queue, reporter, schedule, intake, pacing, make_task, recipe, max_bytes, group_filter
    )
    early_stop = (
        EarlyStop(config.stop_when, config.budget, progress.curve) if config.stop_when else None
    )
    examiner = Examiner(
        state, queue, reporter, books, maker, plans, open_evaluations, pipeline.send, early_stop
    )
    make_publisher = partial(_publisher, config, learners, state, exporter)
    make_fleet = partial(_fleet, config, learners, make_publisher, stop_requested)
    fleet = make_fleet(state, queue, reporter, schedule, intake, pacing)
    checkpoints = Checkpoints(state, learners, intake, reporter, checkpoint_every)
    return Controller(
        state, pipeline, examiner, fleet, checkpoints, learners, reporter, stop_requested
    )


def _fleet(
    config: RunConfig,
    learners: LearnerGroup,
    make_publisher: Callable[[OnRemoved], Publisher],
    stop_requested: Callable[[], bool],
    state: TrainerState,
    queue: TrainerQueue,
    reporter: Reporter,
    schedule: Schedule,
    intake: Intake,
    pacing: Pacing,
) -> Fleet:
    return Fleet(
        state,
        queue,
        reporter,
        schedule,
        intake,
        pacing,
        settings=config.weights,
        # The hours of a shared GPU are counted once, as the trainer's.
        devices_each=0 if config.local.shares_gpu else config.generator.tensor_parallel,
        is_sharded_over_gpus=learners.ranks.are_several_gpus,
        make_publisher=make_publisher,
        stop_requested=stop_requested,
    )


def _publisher(
    config: RunConfig,
    learners: LearnerGroup,
    state: TrainerState,
    exporter: Exporter,
    on_removed: OnRemoved,
) -> Publisher:
    return Publisher(
        weights=config.weights,
        rpc=config.rpc,
        incarnation=state.incarnation,
        history=state.history.earlier,
        lm_head=config.recipe.lm_head,
        specs=learners.specs,
        device=learners.ranks.device,
        exporter=exporter,
        on_removed=on_removed,
        slots=learners.slots,
        lanes=learners.lanes,
        router_replay=config.recipe.router_replay,
        shares_gpu=config.local.shares_gpu,
        secret_place=secret_place(config.run_folder, "rpc.token"),
    )


def _defect_finder(
    config: RunConfig, state: TrainerState, learners: LearnerGroup, end_token_ids: frozenset[int]
) -> DefectFinder:
    return DefectFinder(
        state,
        learners.vocab_size,
        config.model.max_length,
        learners.routing,
        frozenset(item.name for item in config.tasks.environments if item.masks_sampled_tokens),
        end_token_ids,
    )


def _teacher(
    config: RunConfig, exporter: Exporter, is_wanted: Callable[[RolloutGroup], bool]
) -> TeacherClient | None:
    """The client of a teacher that is an endpoint; None = there is no teacher, or the ranks hold
    it.
    """
    distillation = config.recipe.distillation
    if distillation is None or not isinstance(distillation.teacher, EndpointTeacher):
        return None
    return TeacherClient(
        distillation.teacher, exporter, max_tokens=config.model.max_length, is_wanted=is_wanted
    )


def _train_task(
    maker: TaskMaker, prompts: PromptBook, ledger: Ledger, sequence: int, prompt_id: str
) -> PromptTask:
    """A task of the ledger; one that is dispatched again asks for as many rollouts as at first."""
    return maker.make(sequence, prompts[prompt_id], ledger.num_rollouts[sequence], Purpose.TRAIN)
