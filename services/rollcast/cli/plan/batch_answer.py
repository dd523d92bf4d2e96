"""The answer of `rollcast plan batch` as JSON: the splits at the budget, the choice, the missing
run, the cautions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollcast.cli.plan.batch_runs import BatchRun, differences_of_files
from rollcast.cli.plan.own_curves import disagreements, draws_interval, own_curve
from rollcast.config.errors import UserError
from rollcast.curves import amounts
from rollcast.scaling.decisions.batch_choice import choose, further_run, intermediate_shapes, law_at
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import NEGLIGIBLE_GAIN
from rollcast.scaling.law.batch_shape import BatchShape, BatchShapeLaw

BUDGET_MULTIPLES = (0.25, 0.5, 2.0, 4.0)
"""Times the budget at which the choice is shown too: it changes with the compute."""


@dataclass(frozen=True)
class BatchPlan:
    """Runs and the forecast of each, in the same order."""

    runs: Sequence[BatchRun]
    forecasts: Sequence[Forecast]

    @property
    def usable(self) -> list[tuple[BatchRun, Forecast]]:
        """The runs that a law describes: the others have no pass rate at the budget."""
        pairs = zip(self.runs, self.forecasts, strict=True)
        return [(run, forecast) for run, forecast in pairs if forecast.verdict.kind.is_described]

    @property
    def trained(self) -> list[BatchShape]:
        """The different splits of the usable runs, ascending."""
        return sorted({run.batch_shape for run, _ in self.usable})

    def steps(self, batch_shape: BatchShape, budget: float) -> float | None:
        """Steps that the budget buys; a rollout costs as much as in the runs of the nearest
        batches. None = unknown.
        """
        step_costs = {
            run.batch_shape.rollouts_per_step: run.compute_per_step
            for run in self.runs
            if run.compute_per_step
        }
        if not step_costs:
            return None
        batches = sorted(step_costs)
        rollout_costs = [step_costs[batch] / batch for batch in batches]
        size = batch_shape.rollouts_per_step
        return budget / (size * float(np.interp(math.log(size), np.log(batches), rollout_costs)))


def make_batch_answer(
    plan: BatchPlan, candidates: Sequence[BatchShape], budget: float
) -> dict[str, Any]:
    """The whole answer. `candidates`: further splits to choose from.

    Raises UserError: no run has a forecast, or the budget buys no step.
    """
    _check_forecasts(plan)
    trained = plan.trained
    batch_shapes = sorted({*intermediate_shapes(trained), *candidates})
    usable = [(run.batch_shape, forecast) for run, forecast in plan.usable]
    law, *other_laws = law_at(
        usable, [budget, *(multiple * budget for multiple in BUDGET_MULTIPLES)]
    )
    choice = choose(law, batch_shapes)
    why_not = None
    if len(trained) < 2:
        why_not = f"every run with a forecast has {trained[0].name}, so that nothing is compared"
    rows = [_batch_shape_row(plan, batch_shape, law, budget) for batch_shape in batch_shapes]
    if all(row["steps"] is not None and row["steps"] < 1 for row in rows):
        unit = plan.runs[0].curve.unit
        raise UserError(
            f"--budget {budget:g}: buys no step of any split; it counts {unit}, not steps of the "
            "trainer"
        )
    for row, probability, loss in zip(
        rows, choice.best_probability, choice.expected_loss, strict=True
    ):
        row["best_with"] = None if why_not else probability
        row["expected_loss"] = None if why_not else loss
    best = rows[choice.best]
    return {
        "unit": plan.runs[0].curve.unit,
        "budget": budget,
        "recommended": None
        if why_not
        else _batch_shape_settings(batch_shapes[choice.best]) | {"steps": best["steps"]},
        "probability": best["best_with"],
        "expected_loss": best["expected_loss"],
        "unfit": why_not,
        "splits": rows,
        "budgets": [
            _at_budget(other_law, batch_shapes, multiple * budget)
            for other_law, multiple in zip(other_laws, BUDGET_MULTIPLES, strict=True)
            if not why_not
        ],
        "missing": _missing(law, batch_shapes, trained),
        "law": _law_intervals(law),
        "varied": {
            "rollouts_per_prompt": sorted({batch_shape.rollouts for batch_shape in trained}),
            "prompts_per_step": sorted({batch_shape.prompts for batch_shape in trained}),
        },
        "caveats": [
            *unknown_settings(trained),
            *_cautions(plan, rows, budget),
            *differences_of_files(plan.runs),
        ],
    }


def _check_forecasts(plan: BatchPlan) -> None:
    """Raises UserError: no run has a forecast."""
    if plan.usable:
        return
    verdicts = ", ".join(
        f"{forecast.curve.name}: {str(forecast.verdict.kind).replace('_', ' ')}"
        for forecast in plan.forecasts
    )
    raise UserError(
        f"NAME=SOURCE: no run has a forecast ({verdicts}); give runs that neither broke nor fell"
    )


def unknown_settings(trained: Sequence[BatchShape]) -> list[str]:
    """Which of the two settings the runs do not distinguish."""
    rollouts = {batch_shape.rollouts for batch_shape in trained}
    prompts = {batch_shape.prompts for batch_shape in trained}
    sentences = []
    if len(rollouts) == 1:
        sentences.append(
            f"rollouts_per_prompt is {min(rollouts)} in every run; other numbers are guessed."
        )
    # Different numbers of rollouts from which a best one can be found: two give a slope
    elif len(rollouts) < 3:
        sentences.append(
            "Two numbers of rollouts per prompt give a slope and no best number; train a third one."
        )
    if len(prompts) == 1:
        sentences.append(
            f"prompts_per_step is {min(prompts)} in every run; other numbers are guessed."
        )
    if len(rollouts) > 1 and len(prompts) > 1 and _are_aligned(trained):
        sentences.append(
            "Rollouts and prompts changed together, so which of the two matters is not known; vary "
            "one alone."
        )
    return sentences


def _are_aligned(batch_shapes: Sequence[BatchShape]) -> bool:
    """Whether ln n and ln P of all splits are on one line."""
    places = np.log(
        np.array(
            [(batch_shape.rollouts, batch_shape.prompts) for batch_shape in batch_shapes],
            dtype=float,
        )
    )
    return int(np.linalg.matrix_rank(places - places[0], tol=1e-6)) < 2


def _batch_shape_row(
    plan: BatchPlan, batch_shape: BatchShape, law: BatchShapeLaw, budget: float
) -> dict[str, Any]:
    """One split: by the law, and by the curves of its own runs."""
    own_curves = [
        own_curve(run.name, forecast, budget, standard_error=0.0)
        for run, forecast in zip(plan.runs, plan.forecasts, strict=True)
        if run.batch_shape == batch_shape
    ]
    return {
        **_batch_shape_settings(batch_shape),
        "steps": plan.steps(batch_shape, budget),
        "trained": bool(own_curves),
        "pass_rate": amounts.interval(law.pass_rate([batch_shape], amounts.MEDIAN_AND_90)[:, 0]),
        "own_curves": own_curves,
    }


def _batch_shape_settings(batch_shape: BatchShape) -> dict[str, Any]:
    return {
        "name": batch_shape.name,
        "rollouts_per_prompt": batch_shape.rollouts,
        "prompts_per_step": batch_shape.prompts,
    }


def _at_budget(
    law: BatchShapeLaw, batch_shapes: Sequence[BatchShape], budget: float
) -> dict[str, Any]:
    choice = choose(law, batch_shapes)
    return {
        "budget": budget,
        "recommended": batch_shapes[choice.best].name,
        "probability": choice.best_probability[choice.best],
    }


def _missing(
    law: BatchShapeLaw, batch_shapes: Sequence[BatchShape], trained: Sequence[BatchShape]
) -> dict[str, Any] | None:
    """The run to make next, or None if it would hardly change the choice."""
    run = further_run(law, batch_shapes, trained)
    if run.value < NEGLIGIBLE_GAIN:
        return None
    return _batch_shape_settings(run.batch_shape) | {
        "value": run.value,
        "why": _why(run.batch_shape, trained),
    }


def _why(batch_shape: BatchShape, trained: Sequence[BatchShape]) -> str:
    """The property of this split that the trained runs lack."""
    if batch_shape in trained:
        return "since those of this split leave its pass rate open"
    for setting, value, values in (
        (
            "rollouts per prompt",
            batch_shape.rollouts,
            [trained_shape.rollouts for trained_shape in trained],
        ),
        (
            "prompts per step",
            batch_shape.prompts,
            [trained_shape.prompts for trained_shape in trained],
        ),
    ):
        if value > max(values):
            return f"since no run has more than {max(values)} {setting}"
        if value < min(values):
            return f"since no run has fewer than {min(values)} {setting}"
    return "since no run is between those trained"


def _cautions(plan: BatchPlan, rows: Sequence[dict[str, Any]], budget: float) -> list[str]:
    """Warnings about effects that the intervals do not account for."""
    warnings = []
    for run, forecast in zip(plan.runs, plan.forecasts, strict=True):
        kind = forecast.verdict.kind
        times = budget / float(run.curve.compute[-1])
        if not kind.is_described:
            warnings.append(
                f"{run.name} ({run.batch_shape.name}): verdict {str(kind).replace('_', ' ')}; it "
                "is left out of the law. If its split is the cause, avoid it."
            )
        # Times a run's compute: a budget beyond that is called an extrapolation far out. Chosen,
        # not measured.
        elif times > 3.0:
            warnings.append(
                f"{run.name} ({run.batch_shape.name}): the budget is {times:.1f} times its compute."
            )
    for row in rows:
        warnings += disagreements(row, "the law")
    if len(plan.usable) == len(plan.trained):
        warnings.append(
            "One run of each split: how far runs of one split stray is assumed, not measured."
        )
    return warnings


def _law_intervals(law: BatchShapeLaw) -> dict[str, amounts.Interval]:
    return {
        "rollouts_slope": draws_interval(law.coefficients[:, 1]),
        "rollouts_curvature": draws_interval(law.coefficients[:, 2]),
        "prompts_slope": draws_interval(law.coefficients[:, 3]),
        "prompts_curvature": draws_interval(law.coefficients[:, 4]),
        "spread": draws_interval(law.spread),
    }
