"""Second witnesses of the end: what the forecast at a quarter of a run gains by them.

    python -m lab.witness --folder RUNS [--share 0.25]

Two kinds are asked, of the checkpoints and held-out prompts of real runs (`lab.witness.runs`):

- Extrapolated checkpoints (RELEX, arXiv 2605.21468). For each weight matrix the changes since the
  start are reduced to their first singular direction, and the coefficient along it is continued by
  a straight line. The line is over steps, as published, or over the sum of the learning rates,
  since a warm-up bends the former. The extrapolated weights answer the held-out prompts.
- Difficulty. The newest checkpoint answers each held-out prompt 16 times. Witnesses are the share
  of prompts that it solves at least once, the same of 4 times, and the share that it solves at
  least every second time.

Two controls know nothing of weights or prompts: the last reading, and the number 1. The outcome is
the mean of the run's last three evaluations. Writes lab/results/second_witness.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from lab.witness.examiner import Examiner
from lab.witness.extrapolation import Weights, extrapolated
from lab.witness.runs import WEIGHTS
from lab.witness.scores import QUANTILES, compared
from rollcast.runfolder.files import EVALUATIONS, STEPS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from testkit.record import LAB_RESULTS, write_result

DIFFICULTY_REPEATS = 4
"""Times 4 completions: 16 of each prompt."""
SHORT_REACH = 1.25
"""A short extrapolation, for comparison: it shows whether the direction is good even if the end is
out of reach."""


def examined(folder: Path, share: float) -> dict[str, Any]:
    """The readings of one run until `share` of its steps, the witnesses, and the end."""
    steps = list(RecordFile(folder / STEPS, StepRecord).read())
    evaluations = list(RecordFile(folder / EVALUATIONS, EvaluationRecord).read())
    end = steps[-1].step
    cut = int(share * end)
    saved = sorted(int(path.stem) for path in (folder / WEIGHTS).glob("*.npz"))
    seen = [step for step in saved if step <= cut]
    history = [dict(np.load(folder / WEIGHTS / f"{step}.npz")) for step in seen]
    examiner = Examiner(folder.parent / "run.yaml")
    solved = examiner.rewards(history[-1], DIFFICULTY_REPEATS)
    known = [item for item in evaluations if item.step <= cut]
    curve = Curve.from_points(
        [item.step for item in known],
        [item.pass_rate for item in known],
        [item.standard_error or 0.0 for item in known],
        unit="steps",
    )
    rates = np.cumsum([step.learning_rate or 0.0 for step in steps])
    return {
        "run": folder.name,
        "cut": cut,
        "steps": end,
        "evaluations": len(known),
        "checkpoints": len(seen),
        "pass_rate_of_the_checkpoint": float(solved.mean()),
        "short_reach": examiner.pass_rate(
            _reached(examiner.base, history, seen, SHORT_REACH * cut)
        ),
        "forecast": fit(curve).predictive([end], QUANTILES)[:, 0].tolist(),
        "witness": {
            "last reading": known[-1].pass_rate,
            "one": 1.0,
            "extrapolated by steps": examiner.pass_rate(
                _reached(examiner.base, history, seen, end)
            ),
            "extrapolated by learning rate": examiner.pass_rate(
                _reached(
                    examiner.base,
                    history,
                    [float(rates[step - 1]) for step in seen],
                    float(rates[-1]),
                )
            ),
            "solved once in 16": float((solved.max(axis=1) > 0).mean()),
            "solved once in 4": float(
                (solved.reshape(len(solved), DIFFICULTY_REPEATS, -1).max(axis=2) > 0).mean()
            ),
            "solved every second time": float((solved.mean(axis=1) >= 0.5).mean()),
        },
        "outcome": fmean(item.pass_rate for item in evaluations[-3:]),
    }


def _reached(
    base: Weights, history: list[Weights], clock: list[float] | list[int], target: float
) -> Weights:
    return extrapolated(base, history, np.array(clock, dtype=float), target)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="folder of lab.witness.runs")
    parser.add_argument(
        "--share", type=float, default=0.25, help="of the steps, at which the end is forecast"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for path in sorted(arguments.folder.glob(f"*/*/{WEIGHTS}")):
        runs.append(examined(path.parent, arguments.share))
        print(json.dumps(runs[-1]), flush=True)
    losses = compared(runs)
    for name, loss in losses.items():
        print(f"{name}: error {loss['error']:.4f}, pinball {loss['pinball']:.4f}")
    print(
        write_result(
            "second_witness",
            {"share": arguments.share, "runs": runs, "losses": losses},
            LAB_RESULTS,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
