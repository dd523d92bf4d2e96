"""Makes the state of the next incarnation from a checkpoint's progress, or from a new run's.

incarnation (from Redis) -> history -> curriculum -> ledger; tasks dispatched after the checkpoint are taken back
"""

from collections.abc import Callable
from typing import TypeVar

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.data_reuse import reduced
from rollcast.recipe.mixture import MixtureCurriculum, Share, make_curriculum
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.keys import Keys
from rollcast.runfolder.files import COMPUTE
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.dispatch import stored_sequence
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import TrainerState
from rollcast.wire.version import PolicyVersion

Restored = TypeVar("Restored")
log = get_logger()


def resume_state(config: RunConfig, queue: TrainerQueue, parts: list[Share], progress: Progress) -> TrainerState:
    """Take the next incarnation and continue from `progress`. `parts`: the training prompts.

    Raises QueueAway if Redis cannot be reached, UserError if the checkpoint or Redis holds what no run wrote.
    """
    incarnation = queue.start_incarnation(progress.incarnation + 1)
    curriculum = make_curriculum(
        reduced(parts, config.recipe.unique_prompts, seed=config.seed),
        seed=config.seed,
        remove_at=config.recipe.no_positive_resampling,
    )
    return TrainerState(
        folder=config.run_folder,
        budget=config.budget,
        history=_history(progress, incarnation),
        progress=progress,
        curriculum=_restore_curriculum(curriculum, progress),
        ledger=restore_ledger(queue, Keys(config.run, config.redis.scope).state, progress),
        compute=ComputeLedger(config.run_folder / COMPUTE),
        published=PolicyVersion(incarnation, progress.step),
        checkpoint=PolicyVersion(progress.incarnation, progress.step if progress.is_restored else -1),
    )


def _history(progress: Progress, incarnation: int) -> SurvivingHistory:
    if not progress.is_restored:
        return SurvivingHistory((), incarnation)
    earlier = tuple((number, last) for number, last in progress.earlier)
    return SurvivingHistory(earlier, progress.incarnation).continued_by(incarnation, progress.step)


def _restore_curriculum(
    curriculum: Curriculum | MixtureCurriculum, progress: Progress
) -> Curriculum | MixtureCurriculum:
    if (saved := progress.curriculum) is not None:
        _restored("curriculum", lambda: curriculum.restore(saved))
    return curriculum


def restore_ledger(queue: TrainerQueue, state_key: str, progress: Progress) -> Ledger:
    """The checkpoint's ledger. Tasks that a lost history dispatched after it are removed from Redis.

    `state_key`: Redis key of the trainer's state, for error messages.
    """
    highest = stored_sequence(queue, state_key)
    if (saved := progress.ledger) is None:
        ledger = Ledger(next_sequence=highest)
    else:
        ledger = _restored("ledger", lambda: Ledger.restore(saved, at_least=highest))
    queue.remove(list(ledger.held.values()))
    ledger.held.clear()
    lost = queue.outstanding().sequences - ledger.outstanding.keys()
    if lost:
        log.info("tasks dispatched after the checkpoint are taken back", tasks=len(lost))
        queue.retire(sorted(lost))
    return ledger


def _restored(part: str, restore: Callable[[], Restored]) -> Restored:
    """Raises UserError if the checkpoint holds what no run can have saved."""
    try:
        return restore()
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise UserError(
            f"the checkpoint's {part} is damaged ({type(error).__name__}: {str(error)[:100]}); remove the checkpoint "
            "to resume from an older one"
        ) from error
