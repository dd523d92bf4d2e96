"""What the trainer does about numbers that go wrong.

one batch whose gradient is not finite     no update, counted
three of them in a row                     WrongNumbersError: weights or moments may be wrong
weights that are not finite, ranks that differ (`learner.number_checks`)       the same
    -> the trainer ends; its restart goes on from the newest checkpoint
    -> that restart fails no step further on: FailedAgainError, and no restart
a gradient far above the usual             clipped like any other, counted
"""

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from rollcast.config.errors import FailedAgainError, UserError, WrongNumbersError
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.learner.step_sums import UpdateStats

WRONG_NUMBERS = "wrong_numbers"
"""Key of wire 1's state: step, Unix time and incarnation of the newest failure. Step -1: no restart
followed, so that the next start is a user's, with something changed."""
log = get_logger()


@dataclass(eq=False)
class NumberGuard:
    """One incarnation's."""

    _state: TrainerState
    _queue: TrainerQueue
    _exporter: Exporter
    _max_grad_norm: float
    _norms: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    """Gradient norms of the newest updates; empty after a restart."""
    _skipped_in_a_row: int = 0
    _failed_step: float = -1.0
    """Step of the failure that this incarnation is the restart after. -1 = there was none."""

    def __post_init__(self) -> None:
        # Before they count: a rise is seen from the second sample on.
        self._exporter.add(trainer_metrics.UPDATES_SKIPPED, 0)
        self._exporter.add(trainer_metrics.GRADIENT_SPIKES, 0)
        if (failure := _read_failure(self._queue)) is not None:
            step, at, incarnation = failure
            self._exporter.set(trainer_metrics.WRONG_NUMBERS, at)
            # An older one says nothing: a user has gone back to an older checkpoint since then, or
            # begun another run of this name.
            if incarnation == self._state.incarnation - 1:
                self._failed_step = step

    def note(self, stats: UpdateStats) -> None:
        """After each update, made or skipped. Raises WrongNumbersError."""
        if stats.applied:
            self._skipped_in_a_row = 0
            self._note_norm(stats.grad_norm)
            return
        self._skipped_in_a_row += 1
        # Batches have other prompts each, so that three in a row are not one bad batch
        if self._skipped_in_a_row == 3:
            raise WrongNumbersError(
                "the gradient was not finite in 3 batches in a row; see the log before them, or "
                "lower recipe.optimizer.learning_rate"
            )

    def _note_norm(self, norm: float) -> None:
        # Of 4,310 recorded updates of healthy runs none exceeded 8.4 times the median of the 64
        # before it (docs/architecture.md). Norms below a tenth of the clipping bound are not looked
        # at: after batches without signal any gradient is many times the median.
        if len(self._norms) >= 16 and norm > max(
            10.0 * median(self._norms), 0.1 * self._max_grad_norm
        ):
            self._exporter.add(trainer_metrics.GRADIENT_SPIKES)
            log.warning(
                "the gradient is far above the usual norm",
                norm=norm,
                usual=median(self._norms),
            )
        self._norms.append(norm)

    def judge(self, error: WrongNumbersError) -> UserError:
        """Return the error that the trainer ends with, and note it for the next start."""
        step = self._state.progress.step
        has_failed_again = step <= self._failed_step
        noted_step = -1 if has_failed_again else step
        failure = f"{noted_step} {time.time():.0f} {self._state.incarnation}"
        with suppress(QueueAway):
            self._queue.set_state(WRONG_NUMBERS, failure.encode())
        if not has_failed_again:
            return error
        return FailedAgainError(
            f"{error}. A restart came no step further than {self._failed_step:.0f}: fix the cause, "
            "then go on with --resume, or with --resume --step N from an older checkpoint"
        )


def _read_failure(queue: TrainerQueue) -> tuple[float, float, float] | None:
    """Step, time and incarnation of the newest failure."""
    try:
        step, at, incarnation = map(float, (queue.get_state(WRONG_NUMBERS) or b"").split())
    except ValueError:  # there was none, or no trainer wrote this
        return None
    return step, at, incarnation
