"""Seconds a step by the discrete-event model and by a formula, next to measured runs.

    python -m lab.step_forecast

The measured runs are those of benchmarks/results/pipeline.json, where both parts were also measured
alone, and of lab/results/schedules.json: there the generator is given the rate that it delivered
under the one schedule, and the other schedule is predicted. Lengths are those of the task's right
answers, scaled to the measured mean. The engine is taken to decode equally fast at any load, which
is the default of `rollcast plan devices`. A second part is the update of a model on a GPU, which
the rates of `rollcast.throughput` predict from the model's shape, next to
benchmarks/results/gpu-learner-0.6b.json. Writes lab/results/step_forecast.json.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from rollcast.config.recipe import Recipe
from rollcast.memory.recurrence import FLOAT32_BYTES
from rollcast.recipe.schedule import make_schedule
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.split import Rates, Split, SplitSimulator
from rollcast.simulation.workload import Lengths
from rollcast.tasks.arithmetic import draw_operands, worked_answer
from rollcast.throughput.assumptions import Assumptions, flops_utilization
from rollcast.throughput.card import card_named
from rollcast.throughput.model_work import active_weights, training_flops
from testkit.model_shapes import make_shape
from testkit.published_models import QWEN3_0_6B
from testkit.record import LAB_RESULTS, RESULTS, write_result
from testkit.simulation.closed_form import closed_form_step

GROUPS, ROLLOUTS, SLOTS, MAX_DIGITS = 16, 8, 128, 4
"""The settings of configs/demo.yaml."""


@dataclass(frozen=True)
class MeasuredRun:
    """A run whose parts were measured.

    Attributes:
        update_seconds: of a batch in the trainer, without waiting.
        tokens_per_second: of the generator with all its slots taken.
        generator_idle: None = not recorded.
    """

    schedule: str
    kind: str
    max_staleness: int
    update_seconds: float
    tokens_per_second: float
    mean_tokens: float
    step_seconds: float
    generator_idle: float | None


def read_figures(file: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(file.read_text())["figures"]
    return figures


def measured_runs() -> list[MeasuredRun]:
    runs = []
    for pair in read_figures(RESULTS / "pipeline.json")["pairs"]:
        for name, lag in (("pipeline", 8), ("synchronous_k_0", 0)):
            run = pair[name]
            seconds = run["mean_step_seconds"]
            tokens = run["trained_completion_tokens_per_second"] * seconds
            runs.append(
                MeasuredRun(
                    schedule=f"pipeline, k = {lag}",
                    kind="pipeline",
                    max_staleness=lag,
                    update_seconds=pair["training_alone"]["batch_seconds"],
                    tokens_per_second=pair["generation_alone"]["tokens_per_second"],
                    mean_tokens=tokens / (GROUPS * ROLLOUTS),
                    step_seconds=seconds,
                    generator_idle=run["generator_idle_share"],
                )
            )
    return [*runs, phased_run(runs[0].mean_tokens)]


def phased_run(mean_tokens: float) -> MeasuredRun:
    """The run that generates and trains in turn, with the rate of the one that streams."""
    streamed, phased = read_figures(LAB_RESULTS / "schedules.json")["runs"]
    return MeasuredRun(
        schedule="ppo-off-policy, k = 8",
        kind="ppo-off-policy",
        max_staleness=8,
        update_seconds=phased["update_seconds_median"],
        tokens_per_second=GROUPS * ROLLOUTS * mean_tokens * streamed["steps_per_second"],
        mean_tokens=mean_tokens,
        step_seconds=1 / phased["steps_per_second"],
        generator_idle=None,
    )


def lengths_of_answers(mean_tokens: float) -> Lengths:
    """A token for each character of a right answer and for its end."""
    rng = random.Random(0)
    drawn = [
        len(worked_answer(*draw_operands(rng, MAX_DIGITS), rng, 0.0)) + 1 for _ in range(4_000)
    ]
    scale = mean_tokens / fmean(drawn)
    return lambda task_rng: scale * task_rng.choice(drawn)


def predictions(run: MeasuredRun) -> dict[str, Any]:
    """Both predictions for a run, next to the measured step."""
    settings = {"kind": run.kind, "max_staleness": run.max_staleness}
    recipe = TypeAdapter(Recipe).validate_python({"schedule": settings})
    rates = Rates(
        schedule=make_schedule(recipe.schedule, groups_per_step=GROUPS),
        lengths=lengths_of_answers(run.mean_tokens),
        rollouts_per_group=ROLLOUTS,
        engine=EngineSpeed(slots=SLOTS, seconds_per_token=SLOTS / run.tokens_per_second),
        step_seconds=run.update_seconds,
    )
    outcome = SplitSimulator(rates).simulate(Split(1, 1, 1))
    sampling_seconds = GROUPS * ROLLOUTS * run.mean_tokens / run.tokens_per_second
    by_formula = closed_form_step(
        run.update_seconds,
        sampling_seconds,
        0.0,  # the window of k = 8 steps is wider than these short answers need
        runs_ahead=run.kind == "pipeline" and run.max_staleness > 0,
    )
    return {
        **asdict(run),
        "simulated_step_seconds": outcome.step_seconds,
        "simulated_error": outcome.step_seconds / run.step_seconds - 1,
        "simulated_generator_idle": outcome.generator_idle,
        "formula_step_seconds": by_formula,
        "formula_error": by_formula / run.step_seconds - 1,
        "formula_generator_idle": 1 - sampling_seconds / by_formula,
    }


def mean_errors(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean absolute errors by schedule: of the step, relative, and of the generator's idle
    share.
    """
    by_schedule = defaultdict(list)
    for row in rows:
        by_schedule[row["schedule"]].append(row)
    errors = {}
    for schedule, some in by_schedule.items():
        errors[schedule] = {
            f"{method}_step": fmean(abs(row[f"{method}_error"]) for row in some)
            for method in ("simulated", "formula")
        }
        if all(row["generator_idle"] is not None for row in some):
            errors[schedule] |= {
                f"{method}_generator_idle": fmean(
                    abs(row[f"{method}_generator_idle"] - row["generator_idle"]) for row in some
                )
                for method in ("simulated", "formula")
            }
    return errors


def update_on_a_gpu() -> dict[str, float]:
    """Seconds of an update from the model's shape, next to the measured ones with padding."""
    from testkit.gpu.learner import rollouts

    (row,) = [
        row
        for row in read_figures(RESULTS / "gpu-learner-0.6b.json")["rows"]
        if row["variant"] == "plain"
    ]
    card = card_named("H100")
    shape = make_shape(QWEN3_0_6B)
    lengths = [rollout.num_tokens for rollout in rollouts("0.6b", is_small=False)]
    position = sum(length**2 for length in lengths) / (2 * sum(lengths))
    utilization = flops_utilization(active_weights(shape), recomputed=False, has_experts=False)
    products = row["tokens"] * training_flops(shape, position) / (card.flops * utilization)
    bytes_per_second = card.bandwidth * Assumptions().bandwidth_share
    predicted = products + 7 * FLOAT32_BYTES * row["parameters"] / bytes_per_second
    measured = row["step_seconds_median"]
    return {
        "predicted_seconds": predicted,
        "measured_seconds": measured,
        "error": predicted / measured - 1,
        "predicted_mfu": utilization,
        "measured_mfu": row["mfu"],
    }


def main() -> int:
    rows = [predictions(run) for run in measured_runs()]
    for row in rows:
        print(
            f"{row['schedule']:<24}{row['step_seconds']:.3f} s measured, simulated "
            f"{row['simulated_step_seconds']:.3f} ({row['simulated_error']:+.1%}), formula "
            f"{row['formula_step_seconds']:.3f} ({row['formula_error']:+.1%})"
        )
    figures = {
        "runs": rows,
        "mean_absolute_errors": mean_errors(rows),
        "update_on_a_gpu": update_on_a_gpu(),
    }
    print(json.dumps({name: figures[name] for name in list(figures)[1:]}, indent=1))
    print(write_result("step_forecast", figures, LAB_RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
