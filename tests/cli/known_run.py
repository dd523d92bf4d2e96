"""The folder of a run whose rates are known."""

from __future__ import annotations

import json
from pathlib import Path

from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import Pipeline, SimulatedTrainer
from rollcast.simulation.workload import Workload, lognormal

GROUPS, ROLLOUTS, SLOTS, STEP_SECONDS = 8, 4, 16, 2.0
LENGTHS = lognormal(100.0, 0.6, 400.0)


def spent(generators: int) -> str:
    """compute.json as the trainer writes it."""
    devices = {"generator": generators, "trainer": 1}
    return json.dumps(
        {
            "spent": {"generator": 1.5, "trainer": 0.5},
            "devices": devices,
            "at": 1.7e9,
            "stopped": True,
        }
    )


def write_run(
    folder: Path, *, generators: int = 2, steps: int = 80, with_longest: bool = True
) -> Path:
    """A run of known rates: the trainer waits for `generators` that make about 3,200 tokens a
    second together.
    """
    workload = Workload(lengths=LENGTHS, rollouts_per_group=ROLLOUTS)
    pipeline = Pipeline(
        schedule=PipelineRL(max_staleness=4, groups_per_step=GROUPS),
        workload=workload,
        engines=[EngineSpeed(slots=SLOTS, seconds_per_token=0.03)] * generators,
        trainer=SimulatedTrainer(step=STEP_SECONDS),
        delays=Delays(publish=0.01, join=0.0),
        fresh=True,
    )
    times = pipeline.run(steps=steps).step_times
    folder.mkdir()
    config = {
        "run": "known",
        "model": {"path": "m"},
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": 4},
            "prompts_per_step": GROUPS,
            "rollouts_per_prompt": ROLLOUTS,
            "max_completion_tokens": 400,
            "length_control": {"kind": "none"},
        },
        "generator": {"slots": SLOTS},
    }
    (folder / "format.json").write_text('{"format": 1}')
    (folder / "run.json").write_text(json.dumps(config))
    (folder / "compute.json").write_text(spent(generators))
    step_lines, task_lines = [], []
    for step, at in enumerate(times, start=1):
        tasks = [workload.task(number) for number in range(GROUPS * (step - 1), GROUPS * step)]
        tokens = [length for task in tasks for length in task.lengths]
        line = {
            "step": step,
            "at": at,
            "update_seconds": STEP_SECONDS,
            "staleness_tokens": {"1": 10, "3": 30},
        }
        step_lines.append(json.dumps({**line, "completion_tokens_mean": sum(tokens) / len(tokens)}))
        longest = [{"longest": round(max(task.lengths))} if with_longest else {} for task in tasks]
        task_lines += [json.dumps({"what": "used", "tasks": [0], **one}) for one in longest]
    (folder / "steps.jsonl").write_text("\n".join(step_lines) + '\n{"step": torn\n')
    (folder / "tasks.jsonl").write_text("\n".join(task_lines) + "\n")
    return folder
