"""The trainer's process: one per rank. Rank 0 also controls the run; the others follow it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rollcast.config.custom_function_digests import with_digests
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.rules_versions import changed_rules, contaminated_in_words
from rollcast.config.run import RunConfig
from rollcast.config.tasks import Tasks
from rollcast.connections.http import HttpServer, PageReaders, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.recipe.custom_functions import load_custom_functions
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.runfolder.files import BEFORE, Place, checkpoint_place, earlier_run_place
from rollcast.runfolder.kept_checkpoints import check_earlier_run, kept_in_words
from rollcast.runfolder.records import BeforeRecord, as_json
from rollcast.runfolder.writing import make_folder, replace_json
from rollcast.tasks.near_duplicates import near_duplicates
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import check_prompts, load
from rollcast.tasks.same_prompts import check_same_prompts, prompts_digest
from rollcast.tasks.thinking import check_thinking
from rollcast.tasks.tokens import Tokenizer, end_token_ids, load_tokenizer, render
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.locked_memory import why_not_registered
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.stop_signal import StopSignal
from rollcast.trainer.control.build import build_controller
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import MalformedProgress, Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook
from rollcast.trainer.control.teacher_vocabulary import check_teacher
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.checkpoint import (
    DamagedCheckpoint,
    checkpoint_version,
    checkpoints,
    damage_message,
)
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_configured_ranks, lost_rank

LAST_READING_SECONDS = 30.0
"""How long the trainer waits at its end for the readers of /metrics, which may not come again."""
log = get_logger()


@contextmanager
def _lost_ranks_named() -> Iterator[None]:
    """Raises PassingError instead of torch's error if another rank is lost."""
    try:
        yield
    except RuntimeError as error:
        if (lost := lost_rank(error)) is None:
            raise
        raise lost from error


@_lost_ranks_named()
def serve(config: RunConfig, *, resume: bool, step: int | None = None) -> int:
    """Run one rank to its end; returns the exit code. Raises PassingError if it has lost another
    rank.

    `step`: no checkpoint older than the newest of this step is continued; None = the newest whole
    one is.
    """
    stop = StopSignal()
    load_custom_functions(config.recipe)
    # A cluster's run file has no digests: no command that started it saw the code.
    config = config.model_copy(update={"recipe": with_digests(config.recipe)})
    if (sentence := why_not_registered()) is not None:
        log.warning(sentence)
    ranks = join_configured_ranks(config.trainer)
    try:
        learners = LearnerGroup.build(config, ranks)
        if ranks.rank > 0:
            log.info(
                "this rank follows rank 0",
                rank=ranks.rank,
                ranks=ranks.world_size,
                device=str(ranks.device),
            )
            followed = learners.follow(stop)
            log.info("rank ended", rank=ranks.rank, ending=followed.name.lower())
            return followed
        ending = TrainerEnding.FAILED
        try:
            ending = _lead(
                config,
                learners,
                lambda: stop() or learners.sender.stop_asked(),
                resume=resume,
                step=step,
            )
        finally:
            # After an error too, because the other ranks wait for commands.
            learners.stop(ending)
        return ending
    finally:
        ranks.leave()


def _lead(
    config: RunConfig,
    learners: LearnerGroup,
    stop: Callable[[], bool],
    *,
    resume: bool,
    step: int | None,
) -> TrainerEnding:
    folder = config.run_folder
    make_folder(folder)
    location = checkpoint_place(folder, config.trainer.checkpoints)
    progress = restore(config.run, location, learners, resume=resume, step=step) or begin(
        folder, config.model, learners
    )
    tokenizer = load_tokenizer(config.model)
    check_teacher(config.recipe.distillation, config.model, tokenizer)
    exporter = Exporter(config.run)
    kernel = learners.learner.attention_kernel
    compilation = learners.learner.policy.compilation
    exporter.set(trainer_metrics.ATTENTION_KERNEL, 1, kernel=kernel)
    log.info("the model is read", attention_kernel=kernel, compilation=compilation)
    for line in changed_rules(progress.split_rules, progress.grading_rules):
        log.warning(line)
    books = _read_books(config.tasks, config.recipe, tokenizer, exporter, progress)
    # Collective timeouts without a round of the loop after which /healthz reports that it hangs
    state = LoopState(patience_seconds=2.0 * config.trainer.collective_timeout_seconds)
    listener = listen(config.http.bind, config.trainer.http_port, setting="trainer.http_port")
    readers = PageReaders()
    routes = service_routes(exporter.render, state.ready, state.alive, readers)
    http = HttpServer(routes, listener, config.http)
    # Before Redis is waited for, so that probes get an answer.
    http.start()
    publish_port(folder, "trainer", http.port)
    controller = _when_redis_is_there(
        lambda: build_controller(
            config,
            learners=learners,
            queue=RedisTrainerQueue(config.redis, config.run),
            books=books,
            encode=lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]),
            exporter=exporter,
            progress=progress,
            stop_requested=stop,
            end_token_ids=end_token_ids(config.model, tokenizer),
        ),
        stop,
    )
    if controller is None:
        http.stop()
        return TrainerEnding.INTERRUPTED
    try:
        ending = _run(controller, folder, state, readers, stop)
    finally:
        http.stop()
    log.info("trainer ended", ending=ending.name.lower())
    return ending


def _run(
    controller: Controller,
    folder: Path,
    state: LoopState,
    readers: PageReaders,
    stop: Callable[[], bool],
) -> TrainerEnding:
    try:
        publish_port(folder, "rpc", controller.start())
        state.controller = controller
        ending = controller.run()
        ended_at = time.monotonic()
    except Exception as error:
        controller.record_failure(error)
        raise
    finally:
        controller.close()
    if ending is TrainerEnding.FINISHED:
        _wait_for_readers(readers, ended_at, stop)
    return ending


def restore(
    run: str, location: Place, learners: LearnerGroup, *, resume: bool, step: int | None = None
) -> Progress | None:
    """Continue from the newest whole checkpoint; None = no checkpoint at all.

    Raises UserError if all are damaged, with `step` all from the newest of that step on: a
    restarted trainer may continue from later ones.
    """
    locations = checkpoints(location)
    if not locations:
        return None
    if not resume:
        raise UserError(
            f"run = {run!r}: {location} holds a checkpoint already; resume it with --resume, "
            "or choose another name or folder"
        )
    steps = [checkpoint_version(path).step for path in locations]
    if step not in steps:
        return _newest_whole(locations, learners.restore)[1]
    chosen = steps.index(step) + 1
    try:
        return _newest_whole(locations[:chosen], learners.restore)[1]
    except DamagedCheckpoint as error:
        raise UserError(
            f"--step {step}: {error}, or name another step: {kept_in_words(steps[chosen:])}"
        ) from error


def begin(run_folder: Path, model: Model, learners: LearnerGroup) -> Progress:
    """Begin a new run and note in its folder the device-hours spent before it.

    Raises UserError if model.from_run has no weights that fit.
    """
    before_record = BeforeRecord(model.path, None, model.spent_device_hours)
    if model.from_run is not None:
        before_record = _earlier_run(model.from_run, model.from_step, learners)
    if before_record.version is not None or before_record.device_hours is not None:
        replace_json(run_folder / BEFORE, as_json(before_record))
        log.info(
            "device-hours spent before the run are not part of the curve", **as_json(before_record)
        )
    return Progress(spent_before=before_record.device_hours)


def _earlier_run(name: str, step: int | None, learners: LearnerGroup) -> BeforeRecord:
    locations = checkpoints(earlier_run_place(name))
    check_earlier_run(name, step, [checkpoint_version(location).step for location in locations])
    if step is not None:
        locations = [
            checkpoint for checkpoint in locations if checkpoint_version(checkpoint).step == step
        ]
    path, earlier = _newest_whole(locations, learners.take_weights)
    spent = (
        None
        if earlier.compute_state is None
        else sum(earlier.compute_state.values()) + (earlier.spent_before or 0)
    )
    return BeforeRecord(name, str(checkpoint_version(path)), spent)


def _newest_whole(
    locations: Sequence[Place], read_state: Callable[[Place], dict[str, Any]]
) -> tuple[Place, Progress]:
    for path, older in pairwise([*locations, None]):
        assert path is not None
        try:
            return path, _progress(path, read_state(path))
        except DamagedCheckpoint as error:
            if older is None:
                raise
            log.warning(
                "a checkpoint is damaged; the one before is taken",
                error=str(error),
                older=str(older),
            )
    raise AssertionError("the oldest one is read or raises")


def _progress(path: Place, controller: dict[str, Any]) -> Progress:
    try:
        return Progress.from_json(controller)
    except MalformedProgress as error:
        raise DamagedCheckpoint(damage_message(path, error)) from None


def _wait_for_readers(readers: PageReaders, ended_at: float, stop: Callable[[], bool]) -> None:
    """Keep the last evaluation on /metrics until it was read: once this process ends, it cannot be
    read there.
    """
    deadline = ended_at + LAST_READING_SECONDS
    while not stop() and not readers.have_read_since(ended_at):
        if time.monotonic() > deadline:
            log.warning(
                "not every reader of the metrics has read the last ones",
                seconds=LAST_READING_SECONDS,
            )
            return
        # Seconds between two looks at what arrived
        time.sleep(0.05)


def _when_redis_is_there(
    make: Callable[[], Controller], stop: Callable[[], bool]
) -> Controller | None:
    """Wait for Redis until a stop is requested; None = it was."""
    while not stop():
        try:
            return make()
        except QueueAway as error:
            log.warning("Redis cannot be reached; the trainer waits for it", error=str(error))
    return None


def _read_books(
    tasks: Tasks, recipe: Recipe, tokenizer: Tokenizer, exporter: Exporter, progress: Progress
) -> Books:
    """Raises UserError for other prompts than the run began with, which `progress` notes."""
    split = load(tasks, progress.split_rules)
    check_same_prompts(split, progress.prompts)
    progress.prompts = prompts_digest(split)
    for reason, count in split.skipped.items():
        exporter.set(trainer_metrics.PROMPTS_SKIPPED, count, reason=reason)
    for line in (
        *contaminated_in_words(len(split.contaminated)),
        *near_duplicates(tasks, split).in_words(),
    ):
        log.warning(line)
    check_thinking(
        render(tokenizer, split.train[0].messages, tasks.prompt_format)[0], recipe.length_control
    )

    def book(prompts: Sequence[Prompt]) -> PromptBook:
        return PromptBook(
            prompts,
            tokenizer,
            max_prompt_tokens=recipe.max_prompt_tokens,
            prompt_format=tasks.prompt_format,
        )

    check_prompts(split, recipe.prompts_per_step)
    books = Books(
        train=book(split.train),
        held_out=book(split.held_out),
        downstream={
            evaluation_metrics.DOWNSTREAM_PREFIX + name: book(prompts)
            for name, prompts in split.downstream.items()
        },
    )
    skipped = sum(
        prompt_book.skipped_too_long
        for prompt_book in (books.train, books.held_out, *books.downstream.values())
    )
    exporter.set(trainer_metrics.PROMPTS_SKIPPED, skipped, reason="too_long")
    return books


@dataclass(slots=True)
class LoopState:
    """State of the main loop for /readyz and /healthz."""

    patience_seconds: float
    controller: Controller | None = None

    def ready(self) -> tuple[bool, str]:
        return (False, "starting") if self.controller is None else (True, "ok")

    def alive(self) -> tuple[bool, str]:
        """An update may take as long as its collectives may; a loop without a round for longer
        hangs.
        """
        if self.controller is None:
            return True, "starting"
        idle_seconds = time.monotonic() - self.controller.state.last_round_at
        if idle_seconds > self.patience_seconds:
            return False, f"the loop has made no round for {idle_seconds:.0f} s"
        return True, "ok"
