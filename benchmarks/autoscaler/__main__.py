"""Device-hours of a run whose generators scale, against fixed fleets and queue-length HPAs;
results/autoscaler.json.

Discrete events around the real gate, schedule and decision function; see `scenarios` for the
speeds. Device-hours are those of generators and trainer until the same number of optimizer steps is
made, pods that start or drain included.

    growth      answers grow from 2,000 to 10,000 tokens over 1,200 steps
    stationary  answers of 10,000 tokens; the fleet begins at the smallest that will do, and a
                quarter larger
    step        answers double, or halve, immediately
    stragglers  one task in a thousand is six times as long: the trainer waits for it, more
                generators do not help
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from rollcast.config.autoscaler import Autoscaler
from testkit.autoscaler.runs import (
    run_fixed,
    with_queue_hpa,
    with_rollcast,
    with_rollcast_through_hpa,
)
from testkit.autoscaler.scenarios import Scenario
from testkit.record import write_result

MOST_IDLE = 0.05
LEAST_SAVED, MOST_MORE, MOST_LONGEST = 0.15, 0.03, 6.0
MOST = 96
SETTINGS = Autoscaler(mode="controller", deployment="generators", most=MOST)
GROWTH_STEPS, OTHER_STEPS = 1_200, 400
JUMP = 0.3
"""Share of the tasks before lengths jump."""


def growing(progress: float) -> float:
    return 2_000 + 8_000 * progress


def constant(progress: float, *, tokens: float) -> float:
    return tokens


def jump(progress: float, *, before: float, after: float) -> float:
    return before if progress < JUMP else after


def smallest(scenario: Scenario, low: int, high: int) -> int:
    """The fewest fixed generators that keep the trainer idle under 5 %."""
    while low < high:
        middle = (low + high) // 2
        if run_fixed(scenario, middle)["idle"]["all"] < MOST_IDLE:
            high = middle
        else:
            low = middle + 1
    return low


def growth(peak: int, first: int) -> dict[str, Any]:
    scenario = Scenario(name="growth", steps=GROWTH_STEPS, mean_tokens=growing)
    fleet = run_fixed(scenario, peak)
    figures: dict[str, Any] = {
        "fixed": fleet,
        "rollcast": with_rollcast(scenario, first, SETTINGS),
        "rollcast_second_seed": with_rollcast(scenario, first, SETTINGS, seed=1),
        "rollcast_by_hpa_tolerance_0": with_rollcast_through_hpa(
            scenario,
            first,
            SETTINGS.model_copy(update={"mode": "keda", "hpa_tolerance": 0.0}),
            tolerance=0.0,
        ),
        "rollcast_by_hpa_tolerance_10_percent": with_rollcast_through_hpa(
            scenario, first, SETTINGS.model_copy(update={"mode": "keda"}), tolerance=0.1
        ),
    }
    for metric, lengths in (("waiting", (0.25, 0.5, 1.0)), ("unfinished", (3.0, 4.0, 5.0))):
        for per_pod in lengths:
            figures[f"hpa_{metric}_{per_pod:g}_per_pod"] = with_queue_hpa(
                scenario, first, metric=metric, per_pod=per_pod, max_pods=MOST
            )
    for run in figures.values():
        run["saved"] = round(1 - run["device_hours"] / fleet["device_hours"], 4)
    return figures


def stationary(peak: int) -> dict[str, Any]:
    scenario = Scenario(
        name="stationary", steps=OTHER_STEPS, mean_tokens=partial(constant, tokens=10_000.0)
    )
    fleet = run_fixed(scenario, peak)
    figures = {
        "fixed": fleet,
        "rollcast": with_rollcast(scenario, peak, SETTINGS),
        "rollcast_from_a_quarter_more": with_rollcast(scenario, round(1.25 * peak), SETTINGS),
    }
    for run in figures.values():
        run["more"] = round(run["device_hours"] / fleet["device_hours"] - 1, 4)
    return figures


def steps_in_length() -> dict[str, Any]:
    figures = {}
    for name, before, after, first in (
        ("up", 3_000.0, 6_000.0, 26),
        ("down", 6_000.0, 3_000.0, 46),
    ):
        scenario = Scenario(
            name=name,
            steps=OTHER_STEPS,
            mean_tokens=partial(jump, before=before, after=after),
            turns_from=round(JUMP * OTHER_STEPS),
        )
        figures[name] = with_rollcast(scenario, first, SETTINGS)
    return figures


def stragglers() -> dict[str, Any]:
    figures = {}
    for name, share in (("without", 0.0), ("with", 0.001)):
        scenario = Scenario(
            name=name,
            steps=OTHER_STEPS,
            mean_tokens=partial(constant, tokens=4_000.0),
            stragglers=share,
        )
        figures[name] = with_rollcast(scenario, 33, SETTINGS)
    return figures


def targets(figures: dict[str, Any]) -> dict[str, bool]:
    """What must be shown, and whether it was."""
    scaled, still = figures["growth"]["rollcast"], figures["stationary"]
    runs = [
        run
        for name in ("growth", "stationary", "step", "stragglers")
        for run in figures[name].values()
    ]
    ours = [scaled, figures["growth"]["rollcast_second_seed"]]
    queues = [run for name, run in figures["growth"].items() if name.startswith("hpa_")]
    good = [run["device_hours"] for run in queues if run["idle"]["all"] < MOST_IDLE]
    return {
        "longest group at most 6 steps": all(
            run["longest_group_steps"] <= MOST_LONGEST for run in ours
        ),
        "trainer idle under 5 % at steady state": all(
            run["idle_last_quarter"]["all"] < MOST_IDLE for run in ours
        ),
        "staleness never over k": all(
            run["staleness_max"] <= figures["max_staleness"] for run in runs
        ),
        "growth: at least 15 % fewer device-hours": all(
            run["saved"] >= LEAST_SAVED for run in ours
        ),
        "growth: fewer than every queue-length HPA that keeps the trainer busy": all(
            scaled["device_hours"] < hours for hours in good
        ),
        "stationary: at most 3 % more": all(run["more"] <= MOST_MORE for run in still.values()),
        "step up: the number turns at most once": figures["step"]["up"]["turns"] <= 1,
        "step down: the number turns at most once": figures["step"]["down"]["turns"] <= 1,
        "a straggler does not raise the number": figures["stragglers"]["with"]["generators_most"]
        <= figures["stragglers"]["without"]["generators_most"],
    }


def main() -> None:
    peak_of = partial(Scenario, name="peak", steps=200, warm_up=32)
    peak = smallest(peak_of(mean_tokens=partial(constant, tokens=10_000.0)), 40, MOST)
    first = smallest(peak_of(mean_tokens=partial(constant, tokens=2_000.0)), 8, 40)
    figures: dict[str, Any] = {
        "max_staleness": 8,
        "smallest_fixed_at_10000_tokens": peak,
        "smallest_fixed_at_2000_tokens": first,
        "growth": growth(peak, first),
        "stationary": stationary(peak),
        "step": steps_in_length(),
        "stragglers": stragglers(),
    }
    figures["targets"] = targets(figures)
    path = write_result("autoscaler", figures)
    for name in ("growth", "stationary", "step", "stragglers"):
        for run, values in figures[name].items():
            print(f"{name:12}{run:40}{json.dumps(values)}")
    for target, met in figures["targets"].items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
