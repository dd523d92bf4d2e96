"""Positive controls: does the leave-one-out method distinguish a ceiling from a speed? Both are
planted into the demo.

    python -m benchmarks.controls [--seeds 3] [--folder runs/controls]

- ceiling: a completion cap of 30 tokens. A worked addition of n digits takes 8 n + 2 tokens or so:
  those of four digits, the hardest third, cannot be finished any more, in training as in
  evaluation, however long it is trained.
- speed: half the learning rate. The same model learns the same; it only takes longer.

Base, ceiling and speed with each seed, one run after the other, 224 steps each. Goes on with what
the folder holds. The rows are judged by the same code as those of `rollcast ablate`. Writes
results/controls.json; exit status 1 if one of the two is not classified as it was planted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.ablation.__main__ import end_state
from rollcast.cli.ablate import run_planned
from rollcast.cli.ablation_report import make_ablation_answer
from rollcast.cli.demo import shipped_config, with_its_model
from rollcast.cli.leave_one_out_report import show_leave_one_out
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.ablation import Variant, plan
from rollcast.tasks.grading import grade
from rollcast.tasks.prompts import load
from testkit.record import write_result

CAP = 30
RUN_MINUTES = 10.0
CEILING, SPEED = "completion-cap", "half-learning-rate"
PLANTED = {CEILING: "ceiling mover", SPEED: "efficiency shaper"}


def planted(base: RunConfig) -> list[Variant]:
    """The two changes."""
    rate = base.recipe.optimizer.learning_rate / 2
    return [
        Variant(
            CEILING,
            f"completions of {CAP} tokens at most",
            {"recipe": {"max_completion_tokens": CAP}},
        ),
        Variant(
            SPEED, "half the learning rate", {"recipe": {"optimizer": {"learning_rate": rate}}}
        ),
    ]


def blocked_share(base: RunConfig) -> float:
    """Share of the held-out prompts whose worked answer, without its end,
    is longer than the cap.
    """
    prompts = load(base.tasks).held_out
    return sum(shortest_answer(prompt.text, prompt.reference) > CAP for prompt in prompts) / len(
        prompts
    )


def shortest_answer(text: str, reference: str) -> int:
    """Tokens of the worked answer; one character is one token."""
    from random import Random

    from rollcast.tasks.arithmetic import worked_answer

    a, b = text.rstrip("=").split("+")
    answer = worked_answer(int(a), int(b), Random(0), noise=0.0)
    assert grade("arithmetic", answer, reference).reward == 1.0
    return len(answer)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/controls"))
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    base = with_its_model(load_run_config(shipped_config("demo.yaml")))
    started = time.monotonic()
    runs = plan(base, planted(base), num_seeds=arguments.seeds, folder=folder)
    records = run_planned(runs, folder, go_on=True, run_minutes=RUN_MINUTES)
    minutes = (time.monotonic() - started) / 60.0
    _, answer = make_ablation_answer(records)
    show_leave_one_out(answer)
    found: dict[str, Any] = {row["curve"]: row["kind"] for row in answer["leave_one_out"]["rows"]}
    targets = {
        f"{name} is classified as {kind}": found.get(name) == kind for name, kind in PLANTED.items()
    }
    targets["every run ends"] = all(record.state == "finished" for record in records)
    for line in answer["advice"]:
        print(line)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    figures = {
        "minutes": round(minutes, 1),
        "blocked_share": round(blocked_share(base), 3),
        "runs": [end_state(record) for record in records],
        "leave_one_out": answer["leave_one_out"],
        "verdicts": {run["curve"]: run["verdict"] for run in answer["runs"]},
        "advice": answer["advice"],
        "targets": targets,
    }
    print(write_result("controls", figures))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
