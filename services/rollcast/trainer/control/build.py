"""Makes the parts of a controller, each with its own settings, and joins them.

state (of the checkpoint) -> reporter -> intake -> pipeline -> examiner, fleet, checkpoints -> controller
"""

from collections.abc import Callable
from functools import partial

from rollcast.config.run import RunConfig
from rollcast.recipe.schedule import make_schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import PromptTask, Purpose
from rollcast.runfolder.run_secrets import secret_place
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.checkpoints import Checkpoints
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.evaluation import OpenEvaluations, evaluation_plans
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import Fleet, OnRemoved
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing, longest_verdict_seconds
from rollcast.trainer.control.pipeline import GroupPipeline
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, Encode, PromptBook, TaskMaker, shares
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState, resume_state
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
) -> Controller:
    """Take the next incarnation and build its controller.

    `progress`: of the checkpoint that `learners` were restored from, or of a new run. Raises QueueAway if Redis cannot
    be reached, UserError if its contents cannot be used.
    """
    recipe = config.recipe
    max_bytes = config.redis.max_bytes
    schedule = make_schedule(recipe.schedule, groups_per_step=recipe.prompts_per_step)
    plans = evaluation_plans(config.tasks, config.trainer.checkpoint_every_steps)
    state = resume_state(config, queue, shares(books.train, plans[0].weights), progress)
    reporter = Reporter(state, exporter, books.train, recipe, max_staleness=schedule.max_staleness, max_bytes=max_bytes)
    maker = TaskMaker(recipe, encode, incarnation=state.incarnation, seed=config.seed)
    make_task = partial(_train_task, maker, books.train, state.ledger)
    open_evaluations = OpenEvaluations(config.run, config.tasks.evaluation.deadline_seconds)
    intake = Intake(
        state,
        queue,
        open_evaluations,
        exporter,
        make_task=make_task,
        count_outcome=reporter.count_group,
        find_defect=DefectFinder(state, learners.vocab_size, config.model.max_length, learners.routing).find,
        is_filtered=lambda group: recipe.refill_filtered and not assemble([group], recipe).sequences,
        note_answer=GroupSignals(recipe, exporter).note,
    )
    verdict_seconds = longest_verdict_seconds(
        config.tasks, num_slots=config.generator.most_slots, grading_seconds=config.longest_grading_seconds
    )
    pacing = Pacing(recipe, schedule.max_staleness, config.trainer.drop_after_budgets, verdict_seconds)
    pipeline = GroupPipeline(state, queue, reporter, schedule, intake, pacing, make_task, recipe, max_bytes)
    early_stop = EarlyStop(config.stop_when, config.budget, progress.curve) if config.stop_when else None
    examiner = Examiner(state, queue, reporter, books, maker, plans, open_evaluations, pipeline.send, early_stop)
    fleet = Fleet(
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
        make_publisher=partial(_publisher, config, learners, state, exporter),
        stop_requested=stop_requested,
    )
    checkpoints = Checkpoints(state, learners, intake, reporter, config.trainer.checkpoint_every_steps)
    return Controller(state, pipeline, examiner, fleet, checkpoints, learners, reporter, stop_requested)


def _train_task(maker: TaskMaker, prompts: PromptBook, ledger: Ledger, sequence: int, prompt_id: str) -> PromptTask:
    """A task of the ledger; one that is dispatched again asks for as many rollouts as at first."""
    return maker.make(sequence, prompts[prompt_id], ledger.num_rollouts[sequence], Purpose.TRAIN)


def _publisher(
    config: RunConfig, learners: LearnerGroup, state: TrainerState, exporter: Exporter, on_removed: OnRemoved
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
