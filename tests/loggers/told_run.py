"""A run folder with every record that is logged, and what of it must arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.runfolder import files
from rollcast.runfolder.folder import mark_format
from rollcast.runfolder.records import (
    EvaluationRecord,
    ForecastRecord,
    StepRecord,
    as_json,
)
from rollcast.runfolder.samples import SampledCompletion, SamplesRecord
from rollcast.runfolder.writing import append_line, make_folder

STEPS = range(1, 9)
REWARDS = {step: 0.3 + step / 100 for step in STEPS}
PASS_RATES = {0: 0.2, 4: 0.4, 8: 0.5}
COMPLETION = "4 | 5\n`9`"
"""With what a table is made of."""
BEGAN = 1_700_000_000.0


def run_config(folder: Path, *logs: dict[str, Any]) -> RunConfig:
    settings = {
        "run": "told",
        "folder": str(folder),
        "model": {"path": "none", "max_length": 64},
        "recipe": {
            "max_prompt_tokens": 8,
            "max_completion_tokens": 8,
            "length_control": {"kind": "none"},
        },
        "log": list(logs),
        "http": {"token": "not-to-be-told"},
    }
    return parse_run_config(settings, source="test")


def write_steps(folder: Path, steps: range = STEPS) -> None:
    mark_format(folder)
    for step in steps:
        record = StepRecord(
            step=step,
            at=BEGAN + step,
            loss=1.0 / step,
            reward_mean=REWARDS[step],
            staleness_tokens={0: 10, 2: 30},
        )
        append_line(folder / files.STEPS, as_json(record))


def write_run(folder: Path) -> None:
    """Eight steps, three evaluations with their samples, two forecasts."""
    make_folder(folder)
    write_steps(folder)
    for step, rate in PASS_RATES.items():
        at = BEGAN + step + 0.5
        evaluation = EvaluationRecord(
            1, step, rate, 0.1 * step, dataset="sums", standard_error=0.02, at=at
        )
        append_line(folder / files.EVALUATIONS, as_json(evaluation))
        sample = SampledCompletion("2 + 7 = ?", COMPLETION, 1.0, "ok", 5, False)
        append_line(folder / files.SAMPLES, as_json(SamplesRecord(1, step, "sums", [sample], at)))
    for step in (4, 8):
        forecast = ForecastRecord(incarnation=1, step=step, num_evaluations=step // 4 + 1,
            verdict="too_early", asymptote=[0.5, 0.6, 0.8], headroom=[0.1, 0.2, 0.3],
            end=[0.55, 0.57, 0.6], end_compute=2.0, advice="wait",
            headline="Wait for 3 more evaluations", reason="Few evaluations.", chance=0.4,
            at=BEGAN + step + 0.7)  # fmt: skip
        append_line(folder / files.FORECASTS_SAID, as_json(forecast))


NUM_RECORDS = len(STEPS) + 2 * len(PASS_RATES) + 2
