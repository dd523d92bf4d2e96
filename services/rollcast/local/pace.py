"""How fast a run goes on, and when its next step, its next evaluation and its end are due."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollcast.config.services import Budget
from rollcast.runfolder.records import StepRecord

RECENT_STEPS = 20
"""The pace is measured over this many last steps, because it changes as answers grow longer."""
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Moments are Unix seconds; None = not before the end, or unknown."""

    step_seconds: float
    """Time from one step to the next, waits included."""
    next_step_at: float
    next_evaluation_at: float | None
    """When its step is due; its answers come later."""
    end_at: float | None


def pace_of(
    steps: Sequence[StepRecord],
    budget: Budget,
    *,
    every_steps: int,
    num_devices: int,
    compute_device_hours: float,
) -> Pace | None:
    """`steps`: those of this start, in order. None before the second: a first one holds the start-up.

    `every_steps`: between two evaluations. `num_devices`: of this machine's processes.
    """
    times = [record.at for record in steps[-RECENT_STEPS - 1 :] if record.at is not None]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    step = steps[-1].step
    now = times[-1]
    seconds = (now - times[0]) / (len(times) - 1)
    end = _end(budget, step, seconds, now, compute_device_hours, num_devices)
    evaluated = step + every_steps - step % every_steps
    evaluation_at = now + (evaluated - step) * seconds
    is_before_end = end is None or evaluation_at <= end + seconds / 2
    return Pace(
        step_seconds=seconds,
        next_step_at=now + seconds,
        next_evaluation_at=evaluation_at if is_before_end else None,
        end_at=end,
    )


def _end(budget: Budget, step: int, step_seconds: float, now: float, spent: float, num_devices: int) -> float | None:
    """The moment at which the first of the budgets is used up; device-hours pass at the rate of all devices. `spent`:
    device-hours."""
    ends = []
    if budget.steps is not None:
        ends.append(now + (budget.steps - step) * step_seconds)
    if budget.device_hours is not None:
        ends.append(now + (budget.device_hours - spent) / num_devices * SECONDS_PER_HOUR)
    return max(now, min(ends)) if ends else None
