"""Eight kinds of run of which the live page has different things to say, made on the spot.

Readings have the scatter of a thousand prompts and wander a little, as those of real runs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rollcast.scaling.law.curve import Array, sigmoid
from testkit.forecaster.recorded_run import Reading

FOREIGN = "trl-gsm8k"
"""Pushed, in steps; the others are runs of Rollcast, in device-hours."""


@dataclass(frozen=True)
class State:
    """A run, and when it would end."""

    run: str
    compute: Array
    """(n,) in device-hours, or in steps."""
    law: Array
    """(n,) what its readings scatter about."""
    budget: float
    seed: int

    def readings(self) -> list[Reading]:
        """Series as the trainer's page contains them."""
        rng = np.random.default_rng(self.seed)
        # Prompts of an evaluation
        error = np.sqrt(np.maximum(self.law * (1 - self.law), 1e-3) / 1_000)
        scatter = np.where(
            self.law == 0.0, 0.0, error
        )  # a model that solves nothing reads exactly 0
        wander = np.zeros(self.compute.size)
        for index in range(1, self.compute.size):
            wander[index] = 0.7 * wander[index - 1] + 0.5 * rng.standard_normal()
        rates = np.clip(
            self.law + scatter * (rng.standard_normal(self.compute.size) + 0.5 * wander), 0.0, 1.0
        )
        skipped = int(self.compute[0] > 0)  # only an evaluation without compute is one of step 0
        # Steps between evaluations
        steps = range(20 * skipped, 20 * (self.compute.size + skipped), 20)
        truncation = 0.02 + 0.02 * rng.random(self.compute.size)
        quantities = (rates, error, self.compute, 2e6 * self.compute, truncation)
        rows = zip(*(values.tolist() for values in quantities), strict=True)
        return [Reading(1, step, *row) for step, row in zip(steps, rows, strict=True)]


def _make_computes(until: float, count: int) -> Array:
    """Evaluations from the start on, at a pace that varies a little."""
    pace = 1 + 0.1 * np.sin(np.arange(1, count))
    return np.asarray(np.append(0.0, until * np.cumsum(pace) / pace.sum()))


def page_states() -> dict[str, State]:
    """By what the page says of it."""
    long = _make_computes(1_500.0, 30)
    dense = _make_computes(1_500.0, 36)
    climb = sigmoid(dense, 0.12, 0.38, 4.0, 50.0) + 0.12 * np.log1p(dense / 600.0)
    fall = 0.36 / (1.0 + np.exp(-(dense - 1_050.0) / 35.0))
    steps = np.linspace(0.0, 500.0, 26)
    return {
        "rising": State("math-8b", long, sigmoid(long, 0.24, 0.66, 1.9, 420.0), 4_000.0, 2),
        "saturating": State("add-0.6b", long, sigmoid(long, 0.12, 0.996, 2.6, 210.0), 3_000.0, 1),
        "no ceiling": State("code-8b", dense, climb, 3_000.0, 7),
        "flat": State("logic-1.7b", dense, np.full_like(dense, 0.31), 3_000.0, 4),
        "dead": State("proofs-0.6b", long, np.zeros_like(long), 3_000.0, 8),
        "collapsed": State(
            "tools-8b", dense, sigmoid(dense, 0.14, 0.70, 1.9, 190.0) - fall, 3_000.0, 5
        ),
        "two evaluations": State(
            "math-8b-new", np.array([52.0, 101.0]), np.array([0.26, 0.29]), 4_000.0, 3
        ),
        "foreign": State(FOREIGN, steps, sigmoid(steps, 0.31, 0.74, 1.7, 120.0), 800.0, 6),
    }


def make_push_request(state: State) -> dict[str, Any]:
    """The request in which a trainer of another framework would push all of it."""
    points = [
        {
            "step": int(item.compute),
            "pass_rate": item.pass_rate,
            "standard_error": item.standard_error,
        }
        for item in state.readings()
    ]
    return {"run": state.run, "unit": "steps", "budget": state.budget, "points": points}
