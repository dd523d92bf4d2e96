"""Whether the budget has evaluations enough for a forecast."""

import math
from collections.abc import Iterable

from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.local.frozen_forecast import LEAST_EVALUATIONS

SETTINGS = ()


def check(start: Start) -> Iterable[Finding]:
    every = start.config.tasks.evaluation.every_steps
    steps = start.config.budget.steps
    points = LEAST_EVALUATIONS if steps is None else math.ceil(steps / every)
    if steps is None or points >= LEAST_EVALUATIONS:
        return ()
    curve = (
        "only at its start and at its end"
        if points == 1
        else f"only {points} times after its start"
    )
    max_interval_steps = max(1, steps // LEAST_EVALUATIONS)
    more = "" if steps >= LEAST_EVALUATIONS else f", and at least {LEAST_EVALUATIONS} steps"
    return warnings(
        [
            f"tasks.evaluation.every_steps = {every}: with budget.steps {steps} the curve is "
            f"measured {curve}, and a forecast takes {LEAST_EVALUATIONS} evaluations after the "
            f"start; set at most {max_interval_steps}{more}"
        ]
    )
