"""A trial of a run on this machine: the generator's own program, as a process, and what its figures mean."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import PassingError, UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.local.process import Command, Orphans, Service, ServiceSpec
from rollcast.runfolder.files import RUN_FILE
from rollcast.runfolder.records import read_record
from rollcast.runfolder.trial import TrialRecord

TRIAL_SECONDS = 1_800.0
"""An engine that starts, and completions of the paper's length."""
SHOWN_CHARACTERS = 2_000
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TimeOutlook:
    """What a step and the budget take at least, by what generation alone took in the trial; seconds.

    The trainer's own work is not in it: it goes on at the same time, and the slower of the two sets the pace.
    """

    tokens_per_second: float
    """Of one generator, with as many completions at once as the trial had."""
    at_once: int
    step_seconds: float
    evaluation_seconds: float
    num_steps: int | None
    """None = the budget sets none."""
    total_seconds: float | None
    """Of all steps and evaluations; None without a number of steps."""


def try_out(config: RunConfig, num_prompts: int) -> TrialRecord:
    """Sample and grade a few prompts with the real engine. Raises UserError."""
    with tempfile.TemporaryDirectory(prefix="rollcast-try-") as folder:
        run_file, out = Path(folder) / RUN_FILE, Path(folder) / "trial.json"
        write_resolved(config, run_file)
        module = ["-m", "rollcast.generator.trial", "--config", str(run_file)]
        command = (sys.executable, *module, "--prompts", str(num_prompts), "--out", str(out))
        log = Path(folder) / "trial.log"
        code = _ended(Command(command, log))
        if code != 0:
            raise _failed(log.read_text(errors="replace"), code)
        try:
            return read_record(out, TrialRecord)
        except (OSError, ValueError) as error:
            raise PassingError(f"the trial wrote nothing that can be read ({error}); try again") from error


def _ended(command: Command) -> int:
    """The exit code. Nothing of it lives on, its engine neither, however this ends. Raises PassingError."""
    orphans, deadline = Orphans(), time.monotonic() + TRIAL_SECONDS
    trial = Service(ServiceSpec("trial", (command,), stop_order=0, stop_seconds=0.0))
    trial.start()
    try:
        while (code := trial.poll()) is None:
            if time.monotonic() > deadline:
                raise PassingError(
                    f"no answer within {TRIAL_SECONDS:g} s; try fewer prompts, or lower recipe.max_completion_tokens"
                )
            time.sleep(LOOK_SECONDS)
    finally:
        trial.kill()
        orphans.sweep(set(), grace_seconds=0.0)
    return code


def _failed(said: str, code: int) -> UserError:
    sentences = [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
    if sentences:
        return UserError("\n".join(sentences)) if code == UserError.exit_code else PassingError("\n".join(sentences))
    return PassingError(f"the engine ended with exit code {code}: {' '.join(said.split())[-SHOWN_CHARACTERS:]}")


def outlook(config: RunConfig, trial: TrialRecord) -> TimeOutlook:
    """What the trial's rate means for the run file's step, evaluation and budget."""
    recipe, tasks = config.recipe, config.tasks
    at_once = len(trial.completions)
    mean = sum(one.num_tokens for one in trial.completions) / at_once
    rate = at_once * mean / max(trial.sampling_seconds, 1e-6)
    per_completion = mean / rate / max(1, config.local.generators)
    step = recipe.prompts_per_step * recipe.rollouts_per_prompt * per_completion
    held_out = sum(tasks.held_out_prompts(part) for part in tasks.parts)
    evaluation = held_out * tasks.evaluation.rollouts_per_prompt * per_completion
    steps = config.budget.steps
    total = None
    if steps is not None:
        total = steps * step + (steps // tasks.evaluation.every_steps + 1) * evaluation
    return TimeOutlook(rate, at_once, step, evaluation, steps, total)
