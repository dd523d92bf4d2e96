"""Early warning: does a signal of the steps foresee a collapse before the pass rate itself shows
it?

    python -m lab.witness.signals --curves FOLDER --folder RUNS

Every rule has the form of the shipped one for truncation: the median of the newest readings
compared with that of the first half of the run so far, and an alarm if it is larger (or smaller) by
a factor. A rule knows only the steps so far. The factors are the same for all runs. Collapses are
few, so each one is printed, and no rate. The measure of success is the earlier of the verdicts on
the training reward and on the held-out pass rate alone (`judge_fall`), which need no other column.
Writes lab/results/early_warning.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lab.witness.logs import Array, Log, own_log, public_logs
from rollcast.scaling.decisions.falls import judge_fall
from rollcast.scaling.law.curve import Curve
from testkit.record import LAB_RESULTS, write_result

FACTORS = (1.5, 2.0, 3.0, 5.0)
SIGNALS = {
    "entropy": ("up", "down"),
    "gradient norm": ("up",),
    "log-prob gap": ("up",),
    "length": ("up", "down"),
    "truncation": ("up",),
    "reward": ("down",),
}
"""With the directions that a collapse may have. The reward is the pass rate itself, under the same
rule: a control."""
MIN_STEPS = 24
"""Before it no rule speaks: the first steps differ from all later ones in every run."""
MIN_WINDOW_STEPS = 8
"""The newest readings are this many, or a tenth of all; single steps of 8 completions say
little."""
MAX_HEALTHY_GAP = 0.006
"""Nats. Chosen after all own runs were seen: healthy ones stay below 0.005. It depends on model and
precision."""
MIN_TRUNCATION = 0.10
"""A smaller share of truncated answers is no alarm, whatever the factor; the shipped rule has the
same limit."""
BLOCK_STEPS = 5
"""Training rewards are judged in means of this many steps."""


def medians(values: Array) -> tuple[Array, Array]:
    """The median of the newest readings, and that of the first half so far, at each step from
    `MIN_STEPS` on.
    """
    sizes = range(MIN_STEPS, values.size + 1)
    now = [np.median(values[size - max(MIN_WINDOW_STEPS, size // 10) : size]) for size in sizes]
    before = [np.median(values[: size // 2]) for size in sizes]
    return np.array(now), np.array(before)


def alarm(
    step: Array, now: Array, before: Array, factor: float, *, rises: bool, floor: float = 0.0
) -> float | None:
    """The first step at which the newest median differs from that of the first half by `factor`;
    None = never.
    """
    fires = (now > factor * before) & (now >= floor) if rises else now * factor < before
    return float(step[MIN_STEPS - 1 :][fires][0]) if np.any(fires) else None


def gap_alarm(log: Log) -> float | None:
    """The first step at which the newest median of the log-prob gap reaches `MAX_HEALTHY_GAP`; None
    = never.
    """
    gap = log.signals["log-prob gap"]
    for end in range(MIN_WINDOW_STEPS, gap.size + 1):
        if np.median(gap[end - MIN_WINDOW_STEPS : end]) >= MAX_HEALTHY_GAP:
            return float(log.step[end - 1])
    return None


def verdict_step(points: Iterable[tuple[float, float]]) -> float | None:
    """The first step at which `judge_fall` sees that these readings fell; None = never."""
    readings = [point for point in points if point[0] > 0]
    for size in range(1, len(readings) + 1):
        steps, rates = zip(*readings[:size], strict=True)
        if judge_fall(Curve.from_points(steps, rates)) is not None:
            return float(steps[-1])
    return None


def blocks(log: Log) -> list[tuple[float, float]]:
    """The rewards in means of `BLOCK_STEPS` steps, at the step of the last of them."""
    ends = range(BLOCK_STEPS, log.reward.size + 1, BLOCK_STEPS)
    return [
        (float(log.step[end - 1]), float(log.reward[end - BLOCK_STEPS : end].mean()))
        for end in ends
    ]


def judged(log: Log) -> dict[str, Any]:
    """The run's fall with hindsight, as its verdicts see it, and the first alarm of each rule."""
    alarms: dict[str, float | None] = {}
    for signal, directions in SIGNALS.items():
        values = log.reward if signal == "reward" else log.signals.get(signal)
        if values is None:
            continue
        now, before = medians(values)
        floor = MIN_TRUNCATION if signal == "truncation" else 0.0
        for direction in directions:
            for factor in FACTORS:
                at = alarm(log.step, now, before, factor, rises=direction == "up", floor=floor)
                alarms[f"{signal} {direction} {factor:g}"] = at
    if "log-prob gap" in log.signals:
        alarms[f"log-prob gap from {MAX_HEALTHY_GAP:g}"] = gap_alarm(log)
    on_reward = verdict_step(blocks(log))
    on_held_out = verdict_step(log.evaluations)
    kind = "steady" if on_reward is None and on_held_out is None else "declined"
    return {
        "run": log.name,
        "steps": int(log.step[-1]),
        "kind": "collapsed" if log.collapsed else kind,
        "onset": log.onset if log.collapsed else None,
        "reward_verdict": on_reward,
        "held_out_verdict": on_held_out,
        "alarms": alarms,
    }


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each rule: each fall with the lead over the verdict on the pass rate, and the false
    alarms.

    Runs that declined without a collapse are apart: an alarm in them is neither missing nor false.
    """
    rows = []
    for rule in dict.fromkeys(rule for run in runs for rule in run["alarms"]):
        asked = [run for run in runs if rule in run["alarms"]]
        steady = [run for run in asked if run["kind"] == "steady"]
        rows.append(
            {
                "rule": rule,
                "collapsed": {
                    run["run"]: _lead(run, rule) for run in asked if run["kind"] == "collapsed"
                },
                "declined": {
                    run["run"]: _lead(run, rule) for run in asked if run["kind"] == "declined"
                },
                "false": {
                    run["run"]: run["alarms"][rule]
                    for run in steady
                    if run["alarms"][rule] is not None
                },
                "steady": len(steady),
            }
        )
    return rows


def _lead(run: dict[str, Any], rule: str) -> float | None:
    """Steps by which the alarm came before the first verdict on the pass rate; None = never."""
    at = run["alarms"][rule]
    verdicts = [
        run[name] for name in ("reward_verdict", "held_out_verdict") if run[name] is not None
    ]
    if at is None:
        return None
    return float(min(verdicts, default=run["steps"]) - at)


def print_table(runs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    for run in runs:
        print(", ".join(f"{key} {value}" for key, value in run.items() if key != "alarms"))
    for row in rows:
        falls = ", ".join(
            f"{name} {lead}" for name, lead in (row["collapsed"] | row["declined"]).items()
        )
        false = ", ".join(f"{name} at {at:g}" for name, at in row["false"].items())
        print(
            f"{row['rule']}: leads {falls}; false {len(row['false'])} of {row['steady']} ({false})"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curves", type=Path, help="folder of qwen2-7b-gpg and qwen3-0.6b-grpo")
    parser.add_argument("--folder", type=Path, help="folder of lab.witness.runs")
    arguments = parser.parse_args()
    logs = public_logs(arguments.curves) if arguments.curves else []
    if arguments.folder:
        logs += [own_log(path.parent) for path in sorted(arguments.folder.glob("*/*/steps.jsonl"))]
    runs = [judged(log) for log in logs]
    rows = table(runs)
    print_table(runs, rows)
    print(write_result("early_warning", {"runs": runs, "rules": rows}, LAB_RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
