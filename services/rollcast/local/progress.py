"""How far a run has come: the parts of its start, and when its next step, its next evaluation and
its end are due.

up writes the run file -> the trainer has read its model, an engine has started, side by side:
                          each writes its port
                       -> a generator holds the trainer's weights -> the first optimizer step
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.run_end import Budget
from rollcast.connections.port_files import port_file, ports_folder
from rollcast.runfolder.files import RUN_FILE
from rollcast.runfolder.records import StepRecord

TRAINER = "trainer reads the model"
ENGINE = "engine starts"
WEIGHTS = "first weights"
STEP = "first step"
RECENT_STEPS = 20
"""The pace is measured over this many last steps, because it changes as answers grow longer."""
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the start; Unix seconds."""

    name: str
    started_at: float | None
    """None = it waits for those before it."""
    done_at: float | None

    def seconds(self, now_seconds: float) -> float | None:
        """Duration, or the time so far; None if it has not begun."""
        return (
            None
            if self.started_at is None
            else max(0.0, (self.done_at or now_seconds) - self.started_at)
        )


class StartUp:
    """The phases of the newest start, read from when its files were written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready_at: float | None = None

    @property
    def began_at(self) -> float | None:
        """When the newest start wrote its run file; None if no start did."""
        return _written_at(self._folder / RUN_FILE)

    def phases(self, *, is_ready: bool, stepped_at: float | None) -> tuple[Phase, ...]:
        """`is_ready`: a generator samples with the trainer's weights.

        `stepped_at`: of the first step of this start.
        """
        began = self.began_at
        if began is None:
            return ()
        if is_ready and self._ready_at is None:
            self._ready_at = time.time()
        trainer = _since(began, [_written_at(port_file(self._folder, "trainer"))])
        engine = _since(began, map(_written_at, ports_folder(self._folder).glob("generator-*")))
        both_ready_at = None if trainer is None or engine is None else max(trainer, engine)
        ready = stepped_at if self._ready_at is None else self._ready_at
        return (
            Phase(TRAINER, began, trainer),
            Phase(ENGINE, began, engine),
            Phase(WEIGHTS, both_ready_at, ready),
            Phase(STEP, ready, stepped_at),
        )


def _since(began: float, moments: Iterable[float | None]) -> float | None:
    return min(
        (moment for moment in moments if moment is not None and moment >= began), default=None
    )


def _written_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Pace:
    """Moments are Unix seconds; None = not before the end, or unknown."""

    step_seconds: float
    """Time from one step to the next, waits included."""
    next_step_at: float
    next_evaluation_at: float | None
    """When its step is due; its answers come later."""
    end_at: float | None


def estimate_pace(
    steps: Sequence[StepRecord],
    budget: Budget,
    *,
    every_steps: int,
    num_devices: int,
    compute_device_hours: float,
) -> Pace | None:
    """`steps`: those of this start, in order. None before the second: a first one holds the
    start-up.

    `every_steps`: between two evaluations. `num_devices`: of this machine's processes.
    """
    times = [record.at for record in steps[-RECENT_STEPS - 1 :] if record.at is not None]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    step = steps[-1].step
    last_step_at = times[-1]
    seconds = (last_step_at - times[0]) / (len(times) - 1)
    end = _end(budget, step, seconds, last_step_at, compute_device_hours, num_devices)
    evaluated = step + every_steps - step % every_steps
    evaluation_at = last_step_at + (evaluated - step) * seconds
    is_before_end = end is None or evaluation_at <= end + seconds / 2
    return Pace(seconds, last_step_at + seconds, evaluation_at if is_before_end else None, end)


def _end(
    budget: Budget,
    step: int,
    step_seconds: float,
    last_step_at: float,
    spent: float,
    num_devices: int,
) -> float | None:
    """When the first of the budgets is used up; all devices spend device-hours.

    `spent`: device-hours so far.
    """
    ends = []
    if budget.steps is not None:
        ends.append(last_step_at + (budget.steps - step) * step_seconds)
    if budget.device_hours is not None:
        ends.append(last_step_at + (budget.device_hours - spent) / num_devices * SECONDS_PER_HOUR)
    return max(last_step_at, min(ends)) if ends else None
