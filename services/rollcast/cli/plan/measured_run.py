"""Rates of a run, read from its folder: steps.jsonl, tasks.jsonl, compute.json, run.json."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config
from rollcast.curves.amounts import left_out
from rollcast.curves.curve_source import tell
from rollcast.runfolder.files import COMPUTE, RUN_FILE, STEPS, TASKS
from rollcast.runfolder.folder import check_format
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import ComputeRecord, Record, StepRecord, TaskMark, read_record


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
    """Mean tokens of a completion."""
    longest_tokens: float | None
    """Mean of the longest completion of each group; None if the run did not record it."""
    staleness_mean: float | None
    """Mean staleness of the trained tokens, in steps; None if it was not recorded."""
    generators: int
    trainer_devices: int

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second that one generator delivered to training, without those
        of evaluations.
        """
        recipe = self.config.recipe
        tokens = self.mean_tokens * recipe.prompts_per_step * recipe.rollouts_per_prompt
        return tokens / self.interval_seconds / self.generators

    @property
    def waited(self) -> float:
        """Share of the time that the trainer was not in an update."""
        return max(0.0, 1.0 - self.update_seconds / self.interval_seconds)


def read_run(folder: Path) -> MeasuredRun:
    """The rates of the run in `folder`. Raises UserError if something is missing."""
    check_format(folder)
    config = load_run_config(folder / RUN_FILE, dropped=[])
    recorded_steps = _records(folder / STEPS, StepRecord)
    records = [step for record in recorded_steps if (step := _step(record)) is not None]
    if unmeasured := len(recorded_steps) - len(records):
        tell(
            left_out(
                folder / STEPS, unmeasured, "step", "without its time, its update's or its tokens"
            )
        )
    # Newest steps that are measured: answers grow while a model learns, so older ones count no
    # longer Steps from which rates can be measured. Chosen, not measured.
    min_measured_steps = 12
    recent = records[-min(200, max(len(records) // 2, min_measured_steps)) :]
    intervals = [
        new_step.at - old_step.at
        for old_step, new_step in pairwise(recent)
        if new_step.step == old_step.step + 1
    ]
    intervals = [seconds for seconds in intervals if seconds > 0]
    # Median intervals between steps: a longer interval is a pause of the run, not a step. Chosen,
    # not measured.
    usual = [seconds for seconds in intervals if seconds <= 10.0 * median(intervals)]
    if len(usual) < min_measured_steps - 1:
        raise UserError(
            f"--run-folder {folder}: holds {len(records)} optimizer steps, too few to measure "
            "rates; "
            f"give the folder of a run of {2 * min_measured_steps} or more, or the rates themselves"
        )
    generator_devices, trainer_devices = _devices(folder)
    longest = [
        mark.longest for mark in _records(folder / TASKS, TaskMark) if mark.longest is not None
    ]
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
        staleness_mean=sum(age * tokens for age, tokens in ages) / sum(tokens for _, tokens in ages)
        if ages
        else None,
        # A generator that shares the trainer's GPU has no device of its own.
        generators=config.local.generators
        if config.local.shares_gpu
        else max(1, generator_devices // config.generator.tensor_parallel),
        trainer_devices=trainer_devices,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """A step with everything that rates are measured from."""

    step: int
    at: float
    update_seconds: float
    mean_tokens: float
    staleness: dict[int, int]


def _step(record: StepRecord) -> _Step | None:
    at = record.at
    update = record.update_seconds
    tokens = record.completion_tokens_mean
    if at is None or update is None or tokens is None or update <= 0 or tokens <= 0:
        return None
    return _Step(record.step, at, update, tokens, record.staleness_tokens)


def _devices(folder: Path) -> tuple[int, int]:
    """Newest counts of devices: of the generators and of the trainer."""
    path = folder / COMPUTE
    try:
        devices = read_record(path, ComputeRecord).devices
        generator = devices["generator"]
        trainer = devices["trainer"]
    except (OSError, ValueError, KeyError):
        raise UserError(
            f"{path}: does not say how many devices the run had; give the rates themselves"
        ) from None
    if generator < 1 or trainer < 1:
        raise UserError(
            f"{path}: counts {generator} generator and {trainer} trainer devices at the end; "
            "give the folder of a run that still had both, or the rates themselves"
        )
    return generator, trainer


def _records(path: Path, kind: type[Record]) -> list[Record]:
    """Every whole record. Torn lines and other records are counted on standard error."""
    file = RecordFile(path, kind)
    records = list(file.read())
    if file.num_skipped:
        tell(left_out(path, file.num_skipped, "line", "torn or no record of a run"))
    return records
