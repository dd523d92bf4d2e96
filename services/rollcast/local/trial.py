"""A trial of a run on this machine: the generator's and the trainer's own programs, and what their
figures mean.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rollcast.config.errors import PassingError, UserError
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.config.run_end import Budget
from rollcast.config.tasks import Tasks
from rollcast.local.devices import trainer_gpus, usable_gpus
from rollcast.local.process import Command, Orphans, Service, ServiceSpec, last_words
from rollcast.local.services import Environment, rank_environments
from rollcast.runfolder.files import RUN_FILE
from rollcast.runfolder.records import read_record
from rollcast.runfolder.trial_records import TrialRecord, UpdateTrialRecord

TRIAL_SECONDS = 1_800.0
"""An engine that starts, and completions of the paper's length."""
SECONDS_PER_HOUR = 3_600.0
_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class TimeOutlook:
    """Seconds that a step and the budget take, by the times of generation and of the trainer in the
    trial.

    Both work at the same time, and the slower one sets the pace. Start and checkpoints are not in
    it, nor what the two take from one another on few cores.
    """

    tokens_per_second: float
    """Tokens per second of one generator, with as many concurrent completions as the trial had."""
    at_once: int
    generation_seconds: float
    """Seconds of a step's completions."""
    update_seconds: float
    """Seconds of a step's optimizer step."""
    evaluation_seconds: float
    num_devices: int
    """GPUs, or cores if there is no GPU: the devices of device-hours."""
    num_steps: int | None
    """Steps of the budget, or as many as its device-hours allow; None = it sets neither."""
    total_seconds: float | None
    """Seconds of all those steps and their evaluations."""

    @property
    def step_seconds(self) -> float:
        return max(self.generation_seconds, self.update_seconds)


def try_out(config: RunConfig, num_prompts: int) -> TrialRecord:
    """Sample and grade a few prompts with the real engine. Raises UserError."""
    with tempfile.TemporaryDirectory(prefix="rollcast-try-") as folder:
        return _run_trial(
            config, Path(folder), TrialRecord, "generator", "--prompts", str(num_prompts)
        )


def time_update(config: RunConfig, trial: TrialRecord) -> UpdateTrialRecord:
    """Make one optimizer step on as many rollouts as were tried, on all ranks of the run file.

    Raises UserError.
    """
    gpus = usable_gpus()[: config.local.gpus]
    ranks = rank_environments(config.local.trainer_ranks, trainer_gpus(config.local, gpus))
    with tempfile.TemporaryDirectory(prefix="rollcast-try-") as folder:
        tried = Path(folder) / "tried.json"
        tried.write_text(json.dumps(asdict(trial)))
        return _run_trial(
            config, Path(folder), UpdateTrialRecord, "trainer", "--trial", str(tried), ranks=ranks
        )


def _run_trial(
    config: RunConfig,
    folder: Path,
    kind: type[_Record],
    service: str,
    *arguments: str,
    ranks: Sequence[Environment] = (dict,),
) -> _Record:
    """Run the service's trial, a process for each environment of `ranks`, and read its record.

    Raises UserError.
    """
    out = folder / "found.json"
    write_resolved(config, folder / RUN_FILE)
    files = ("--config", str(folder / RUN_FILE), "--out", str(out))
    program = (sys.executable, "-m", f"rollcast.{service}.trial", *files, *arguments)
    code, log_file = _await_trial(
        [
            Command(program, folder / f"trial-{rank}.log", environment)
            for rank, environment in enumerate(ranks)
        ]
    )
    if code != 0:
        raise _trial_error(log_file, code)
    try:
        return read_record(out, kind)
    except (OSError, ValueError) as error:
        raise PassingError(
            f"the trial wrote nothing that can be read ({error}); try again"
        ) from error


def _await_trial(commands: Sequence[Command]) -> tuple[int, Path]:
    """The exit code and the log with its reason. No process outlives this call, not even an engine.

    Raises PassingError.
    """
    orphans = Orphans()
    deadline = time.monotonic() + TRIAL_SECONDS
    trial = Service(ServiceSpec("trial", tuple(commands), stop_order=0, stop_seconds=0.0))
    trial.start()
    try:
        while (code := trial.poll()) is None:
            if time.monotonic() > deadline:
                raise PassingError(
                    f"no answer within {TRIAL_SECONDS:g} s; try fewer prompts, or lower "
                    "recipe.max_completion_tokens"
                )
            # Seconds between two looks at the processes
            time.sleep(0.1)
    finally:
        trial.kill()
        orphans.sweep(set(), grace_seconds=0.0)
    return code, trial.log


def _trial_error(log: Path, code: int) -> UserError:
    """The sentences of the log, else the reason that it names. The log is kept for the user."""
    log_text = log.read_text(errors="replace")
    descriptor, kept_log = tempfile.mkstemp(prefix="rollcast-try-", suffix=".log")
    with os.fdopen(descriptor, "w") as file:
        file.write(log_text)
    sentences = [
        line.removeprefix("error: ") for line in log_text.splitlines() if line.startswith("error: ")
    ]
    words = "\n".join(sentences) or f"the trial ended with exit code {code}: {last_words(log, 0)}"
    is_users_mistake = sentences and code == UserError.exit_code
    return (UserError if is_users_mistake else PassingError)(f"{words} (log: {kept_log})")


def outlook(
    recipe: Recipe,
    tasks: Tasks,
    budget: Budget,
    trial: TrialRecord,
    update: UpdateTrialRecord,
    *,
    generators: int,
    workers: int,
) -> TimeOutlook:
    """Time of a step, an evaluation and the budget, by the measured rates.

    `workers`: devices of a generator.
    """
    at_once = len(trial.completions)
    mean = sum(completion.num_tokens for completion in trial.completions) / at_once
    rate = at_once * mean / max(trial.sampling_seconds, 1e-6)
    per_completion = mean / rate / max(1, generators)
    of_a_step = recipe.prompts_per_step * recipe.rollouts_per_prompt
    generation = of_a_step * per_completion
    training = update.passes_seconds * of_a_step / at_once + update.rest_seconds
    held_out = sum(tasks.held_out_prompts(mixture_part) for mixture_part in tasks.parts)
    evaluation = held_out * tasks.evaluation.rollouts_per_prompt * per_completion
    devices = update.num_devices + generators * workers
    step = max(generation, training)
    every = tasks.evaluation.every_steps
    steps = budget.steps
    if budget.device_hours is not None:
        paid_for = (
            budget.device_hours * SECONDS_PER_HOUR / devices - evaluation
        )  # the first one is before step 1
        enough_for = max(0, int(paid_for / (step + evaluation / every)))
        steps = enough_for if steps is None else min(steps, enough_for)
    total = None if steps is None else steps * step + (steps // every + 1) * evaluation
    return TimeOutlook(rate, at_once, generation, training, evaluation, devices, steps, total)
