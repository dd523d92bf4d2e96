"""State that the parts of a controller share, and how the next incarnation makes it of a
checkpoint's progress.

incarnation (from Redis) -> history -> curriculum -> ledger

Tasks dispatched after the checkpoint are taken back.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.rules_versions import GRADING_RULES
from rollcast.config.run import RunConfig
from rollcast.config.run_end import Budget
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.data_reuse import reduce_shares
from rollcast.recipe.mixture import MixtureCurriculum, Share, make_curriculum
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.keys import Keys
from rollcast.runfolder.files import COMPUTE
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.ledger import MAX_SEQUENCE_DIGITS, Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.wire.version import PolicyVersion

NEXT_SEQUENCE = "next_sequence"
"""Key of wire 1's state: no sequence is given out twice, whatever checkpoint a restart begins
from."""
MAX_STORED_DIGITS = MAX_SEQUENCE_DIGITS - 1
"""A digit less than a sequence may have on wire 1, so that those given out from here on fit."""
log = get_logger()


@dataclass(frozen=True, slots=True)
class SurvivingHistory:
    """Which versions' weights the run still descends from: earlier incarnations, each with the last
    step that survives, and the current one.

    incarnation 1: steps 0 1 2 3 4 5 6 x killed          checkpoint at 4
    incarnation 2:               4 5 6 7 8 x killed      checkpoint at 8
    incarnation 3:                       8 9 ...
    surviving: 1.0 .. 1.4, 2.4 .. 2.8, 3.8 ..            lost: 1.5, 1.6
    """

    earlier: tuple[tuple[int, int], ...]
    """(incarnation, last surviving step), oldest first."""
    incarnation: int

    def survives(self, version: PolicyVersion) -> bool:
        """Whether the current weights descend from `version`."""
        first_step = self._first_step(version.incarnation)
        last_step = dict(self.earlier).get(version.incarnation, version.step)
        return first_step is not None and first_step <= version.step <= last_step

    def never_was(self, version: PolicyVersion) -> bool:
        """Whether no such version can have been published: its incarnation began at a later step,
        or does not exist.
        """
        first_step = self._first_step(version.incarnation)
        return version.incarnation < 1 or (first_step is not None and version.step < first_step)

    def _first_step(self, incarnation: int) -> int | None:
        """First step of an incarnation: the last surviving step of the one before.

        None = nothing of it survives.
        """
        began = [0, *(last for _, last in self.earlier)]
        numbers = [*(number for number, _ in self.earlier), self.incarnation]
        return dict(zip(numbers, began, strict=True)).get(incarnation)

    def continued_by(self, incarnation: int, step: int) -> "SurvivingHistory":
        """The history of a new incarnation that starts from a checkpoint of this one at `step`."""
        assert incarnation > self.incarnation, (incarnation, self.incarnation)
        return SurvivingHistory((*self.earlier, (self.incarnation, step)), incarnation)


@dataclass(slots=True)
class TrainerState:
    """One incarnation of the trainer. Only the main thread changes it; `resume_state` makes it.

    The publisher's thread reads `ledger` when a generator is removed (`Fleet.fence`).
    """

    folder: Path
    """The run's folder."""
    budget: Budget
    history: SurvivingHistory
    progress: Progress
    """Step, trained tokens and evaluations of the surviving history; goes into checkpoints."""
    curriculum: Curriculum | MixtureCurriculum
    ledger: Ledger
    compute: ComputeLedger
    published: PolicyVersion
    """Newest version that was published, so no generator holds a newer one."""
    checkpoint: PolicyVersion
    """Newest checkpoint that was begun or resumed from. Its step is -1 without a checkpoint."""
    steps_since_start: int = 0
    last_round_at: float = field(default_factory=time.monotonic)
    """When the loop last began a round, in monotonic seconds; /healthz reports a loop that
    hangs."""

    @property
    def incarnation(self) -> int:
        return self.history.incarnation

    @property
    def version(self) -> PolicyVersion:
        """Version of the trainer's weights, published or not."""
        return PolicyVersion(self.incarnation, self.progress.step)

    @property
    def is_budget_spent(self) -> bool:
        steps = self.budget.steps
        device_hours = self.budget.device_hours
        if steps is not None and self.progress.step >= steps:
            return True
        return device_hours is not None and self.compute.total_state >= device_hours

    def is_in_checkpoint(self, version: PolicyVersion) -> bool:
        """Whether the newest checkpoint's weights descend from `version`."""
        if version.incarnation != self.incarnation:
            return self.history.survives(version)
        return (
            self.checkpoint.incarnation == self.incarnation and version.step <= self.checkpoint.step
        )

    def progress_to_save(self) -> Progress:
        """`progress`, with everything else that a checkpoint holds brought up to date."""
        progress = self.progress
        progress.incarnation = self.incarnation
        progress.earlier = self.history.earlier
        progress.compute_state = self.compute.state
        progress.start_up = self.compute.total_start_up
        progress.ledger = self.ledger
        progress.curriculum = self.curriculum.state()
        progress.grading_rules = GRADING_RULES
        return progress


def resume_state(
    config: RunConfig, queue: TrainerQueue, parts: list[Share], progress: Progress
) -> TrainerState:
    """Take the next incarnation and continue from `progress`. `parts`: the training prompts.

    Raises QueueAway if Redis cannot be reached, UserError if the checkpoint or Redis holds what no
    run wrote.
    """
    # Redis may know of later incarnations, which began and left no checkpoint.
    incarnation = queue.start_incarnation(progress.incarnation + 1)
    # Without a checkpoint nothing of earlier incarnations survives.
    history = SurvivingHistory((), incarnation)
    if progress.is_restored:
        history = SurvivingHistory(progress.earlier, progress.incarnation).continued_by(
            incarnation, progress.step
        )
    curriculum = make_curriculum(
        reduce_shares(parts, config.recipe.unique_prompts, seed=config.seed),
        seed=config.seed,
        remove_at=config.recipe.removal_pass_rate,
        custom_function=config.recipe.curriculum,
    )
    _restore_curriculum(curriculum, progress)
    return TrainerState(
        folder=config.run_folder,
        budget=config.budget,
        history=history,
        progress=progress,
        curriculum=curriculum,
        ledger=restore_ledger(queue, Keys(config.run, config.redis.scope).state, progress),
        compute=ComputeLedger(
            config.run_folder / COMPUTE,
            teacher_devices=config.recipe.distillation.devices
            if config.recipe.distillation is not None
            else 0,
        ),
        published=PolicyVersion(incarnation, progress.step),
        checkpoint=PolicyVersion(
            progress.incarnation, progress.step if progress.is_restored else -1
        ),
    )


def _restore_curriculum(curriculum: Curriculum | MixtureCurriculum, progress: Progress) -> None:
    """Raises UserError if the checkpoint holds what no run can have saved."""
    if progress.curriculum is None:
        return
    try:
        curriculum.restore(progress.curriculum)
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise UserError(
            f"the checkpoint's curriculum is damaged ({type(error).__name__}: {str(error)[:100]}); "
            "remove the checkpoint to resume from an older one"
        ) from error


def restore_ledger(queue: TrainerQueue, state_key: str, progress: Progress) -> Ledger:
    """The checkpoint's ledger. Tasks that a lost history dispatched after it are removed from
    Redis.

    `state_key`: Redis key of the trainer's state, for error messages.
    """
    ledger = progress.ledger or Ledger()
    ledger.next_sequence = max(ledger.next_sequence, _stored_sequence(queue, state_key))
    # The checkpoint has their result, so that only an older one would need them.
    queue.remove(list(ledger.held.values()))
    ledger.held.clear()
    lost = queue.outstanding().sequences - ledger.outstanding.keys()
    if lost:
        log.info("tasks dispatched after the checkpoint are taken back", tasks=len(lost))
        queue.retire(sorted(lost))
    return ledger


def _stored_sequence(queue: TrainerQueue, state_key: str) -> int:
    """The first sequence that was never given out, as wire 1 knows it.

    Raises UserError if that is not a number.
    """
    text = queue.get_state(NEXT_SEQUENCE)
    if text is None:
        return 0
    if not text.isdigit() or len(text) > MAX_STORED_DIGITS:
        raise UserError(
            f"redis: trainer:{NEXT_SEQUENCE} in {state_key} is {text[:200]!r}, not a sequence; "
            "set it (HSET) to one more than the highest task in the run's tasks.jsonl"
        )
    return int(text)
