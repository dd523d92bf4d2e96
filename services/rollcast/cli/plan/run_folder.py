"""Rates of a run, read from its folder: steps.jsonl, tasks.jsonl, compute.json, run.json."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from rollcast.cli.curve_rows import tell_left_out
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.status import JsonLines
from rollcast.runfolder.folder import RUN_FILE

LEAST_STEPS = 12
MOST_STEPS = 200
PAUSE = 10.0
"""An interval of so many median ones is a pause of the run, not a step."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The last half of a run, at most 200 steps."""

    config: RunConfig
    num_steps: int
    pauses: int
    """Intervals that were left out: restarts, stops."""
    interval_seconds: float
    """Mean time from one step to the next."""
    update_seconds: float
    """Mean time of an update."""
    mean_tokens: float
    """Of a completion."""
    longest_tokens: float | None
    """Mean of the longest completion of each group; None where the run did not write it down."""
    staleness_mean: float | None
    """Of the trained tokens, in steps."""
    generators: int
    trainer_devices: int

    @property
    def tokens_per_second(self) -> float:
        """What one generator delivered to training; evaluation's tokens are not in it."""
        recipe = self.config.recipe
        tokens = self.mean_tokens * recipe.prompts_per_step * recipe.rollouts_per_prompt
        return tokens / self.interval_seconds / self.generators

    @property
    def waited(self) -> float:
        """Share of the time that the trainer was not in an update."""
        return max(0.0, 1.0 - self.update_seconds / self.interval_seconds)


def read_run(folder: Path) -> MeasuredRun:
    """Raises UserError: what is missing and what would help."""
    config = load_run_config(folder / RUN_FILE)
    lines = _lines(folder / "steps.jsonl")
    records = [numbers for line in lines if (numbers := _step(line)) is not None]
    if unmeasured := len(lines) - len(records):
        tell_left_out(folder / "steps.jsonl", unmeasured, "step", "without its time, its update's or its tokens")
    recent = records[-min(MOST_STEPS, max(len(records) // 2, LEAST_STEPS)) :]
    intervals = [after.at - before.at for before, after in pairwise(recent) if after.step == before.step + 1]
    intervals = [seconds for seconds in intervals if seconds > 0]
    usual = [seconds for seconds in intervals if seconds <= PAUSE * median(intervals)]
    if len(usual) < LEAST_STEPS - 1:
        raise UserError(
            f"--run-folder {folder}: holds {len(records)} optimizer steps, too few to measure rates; "
            f"give the folder of a run of {2 * LEAST_STEPS} or more, or the rates themselves"
        )
    generator_devices, trainer_devices = _devices(folder)
    longest = [value for line in _lines(folder / "tasks.jsonl") if (value := _number(line.get("longest"))) is not None]
    longest = longest[-len(recent) * config.recipe.prompts_per_step :]
    ages = [pair for record in recent for pair in record.staleness.items()]
    return MeasuredRun(
        config=config,
        num_steps=len(recent),
        pauses=len(intervals) - len(usual),
        interval_seconds=fmean(usual),
        update_seconds=fmean(record.update_seconds for record in recent),
        mean_tokens=fmean(record.mean_tokens for record in recent),
        longest_tokens=fmean(longest) if longest else None,
        staleness_mean=sum(age * tokens for age, tokens in ages) / sum(tokens for _, tokens in ages) if ages else None,
        generators=max(1, generator_devices // config.generator.tensor_parallel),
        trainer_devices=trainer_devices,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    step: int
    at: float
    update_seconds: float
    mean_tokens: float
    staleness: dict[int, float]


def _step(line: dict[str, object]) -> _Step | None:
    step, at = _number(line.get("step")), _number(line.get("at"))
    update, tokens = _number(line.get("update_seconds")), _number(line.get("completion_tokens_mean"))
    if step is None or at is None or update is None or tokens is None or update <= 0 or tokens <= 0:
        return None
    ages = line.get("staleness_tokens")
    staleness = {}
    for age, count in (ages if isinstance(ages, dict) else {}).items():
        if str(age).isdigit() and (number := _number(count)) is not None:
            staleness[int(age)] = number
    return _Step(int(step), at, update, tokens, staleness)


def _devices(folder: Path) -> tuple[int, int]:
    """Of generators and of the trainer, as last counted."""
    path = folder / "compute.json"
    try:
        devices = json.loads(path.read_text())["devices"]
        generator, trainer = int(devices["generator"]), int(devices["trainer"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path}: does not say how many devices the run had; give the rates themselves") from None
    if generator < 1 or trainer < 1:
        raise UserError(
            f"{path}: counts {generator} generator and {trainer} trainer devices at the end; "
            "give the folder of a run that still had both, or the rates themselves"
        )
    return generator, trainer


def _lines(path: Path) -> list[dict[str, object]]:
    """Every whole line; those that are torn or no JSON object are counted on standard error."""
    reader = JsonLines(path)
    lines = list(reader.read())
    if reader.num_skipped:
        tell_left_out(path, reader.num_skipped, "line", "no JSON object")
    return lines


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
