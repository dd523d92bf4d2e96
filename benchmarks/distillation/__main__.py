"""On-policy distillation on the demo's task: does a stronger teacher teach more quickly than the
verifier?

    python -m benchmarks.distillation [--seeds 1] [--quick-seeds 1] [--folder runs/distillation]

The teacher is the demo's own model at the end of a run of 224 steps by reinforcement learning.
Then, from the base model and with each seed, 112 steps of: plain reinforcement learning,
distillation alone (no reward), and both added. Settings and learning rate are the demo's in all.
Then the same at four times the learning rate, since AdamW's step is as long for a clear gradient as
for a noisy one, and a clear one may allow more. Goes on with what the folder holds. Writes
results/distillation.json: the pass rate over steps; exit status 1 if a run fails or distillation
alone does not gain.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.ablation.__main__ import end_state
from rollcast.cli.ablate import run_planned
from rollcast.cli.demo import shipped_config, with_its_model
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.ablation import Variant, plan
from rollcast.runfolder.files import EXPORT, STEPS
from rollcast.runfolder.outcomes import RunRecord
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import StepRecord
from testkit.record import write_result

TEACHER_STEPS = 224
STUDENT_STEPS = 112
QUICK_RATE_FACTOR = 4.0
RUN_MINUTES = 40.0
"""A run takes four minutes on two idle cores; this one may share them."""
ALONE, ADDED = "distilled", "distilled-and-rewarded"


def students(teacher: Path) -> list[Variant]:
    """The variants to compare with plain reinforcement learning."""

    def distillation(*, with_reward: bool) -> dict[str, Any]:
        settings = {"teacher": {"kind": "folder", "path": str(teacher)}, "with_reward": with_reward}
        return {"recipe": {"distillation": settings}}

    return [
        Variant(ALONE, "the teacher alone", distillation(with_reward=False)),
        Variant(ADDED, "teacher and verifier", distillation(with_reward=True)),
    ]


def with_distance(record: RunRecord) -> dict[str, Any]:
    """A run's end and curve, and its reverse KL to the teacher at the first
    and at the last step.
    """
    steps = RecordFile(Path(record.folder) / STEPS, StepRecord).read()
    distances = [step.teacher_kl for step in steps if step.teacher_kl is not None]
    known = (
        {"teacher_kl_first": distances[0], "teacher_kl_last": distances[-1]} if distances else {}
    )
    return end_state(record) | known


def with_rate(config: RunConfig, factor: float) -> RunConfig:
    optimizer = config.recipe.optimizer
    faster = optimizer.model_copy(update={"learning_rate": factor * optimizer.learning_rate})
    return config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"optimizer": faster})}
    )


def trained(
    config: RunConfig, variants: list[Variant], num_seeds: int, folder: Path
) -> list[RunRecord]:
    """Plain reinforcement learning and every variant with each seed."""
    planned = plan(config, variants, num_seeds=num_seeds, folder=folder)
    return run_planned(planned, folder, go_on=True, run_minutes=RUN_MINUTES)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--quick-seeds", type=int, default=1, help="at four times the learning rate"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/distillation"))
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    started = time.monotonic()
    demo = with_its_model(load_run_config(shipped_config("demo.yaml")))
    long = demo.model_copy(
        update={"run": "teacher", "budget": demo.budget.model_copy(update={"steps": TEACHER_STEPS})}
    )
    [teacher] = run_planned(
        plan(long, [], num_seeds=1, folder=folder / "teacher"),
        folder / "teacher",
        go_on=True,
        run_minutes=RUN_MINUTES,
    )
    short = demo.model_copy(
        update={"budget": demo.budget.model_copy(update={"steps": STUDENT_STEPS})}
    )
    variants = students(Path(teacher.folder) / EXPORT)
    records = trained(short, variants, arguments.seeds, folder / "students")
    quick = trained(
        with_rate(short, QUICK_RATE_FACTOR),
        variants,
        arguments.quick_seeds,
        folder / "quick-students",
    )
    alone = [
        record
        for record in (*records, *quick)
        if f"-{ALONE}" in record.run and ADDED not in record.run
    ]
    targets = {
        "every run ends": all(record.state == "finished" for record in (teacher, *records, *quick)),
        "distillation alone gains": all(
            (one.measured or 0.0) > (one.initial or 0.0) for one in alone
        ),
    }
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    figures = {
        "minutes": round((time.monotonic() - started) / 60.0, 1),
        "seeds": arguments.seeds,
        "quick_seeds": arguments.quick_seeds,
        "teacher": end_state(teacher),
        "runs": [with_distance(record) for record in records],
        "quick_runs": [with_distance(record) for record in quick],
        "targets": targets,
    }
    print(write_result("distillation", figures))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
