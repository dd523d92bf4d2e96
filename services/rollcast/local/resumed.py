"""The settings of a resumed run that differ from its last start."""

from pathlib import Path

from rollcast.config.base import Settings
from rollcast.config.errors import UserError
from rollcast.config.resolved import differences
from rollcast.config.rules_versions import changed_rules
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.own_copies import is_move
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.files import UP_FILE, checkpoint_place
from rollcast.runfolder.rules import checkpoint_rules

FIXED = ("tasks.dataset.kind", "tasks.dataset.name", "tasks.evaluation.num_prompts", "tasks.evaluation.seed")
"""They decide which prompts the curve is measured on: with others it would go on as another one, unnoticed."""
MEANING = {
    "recipe.optimizer.learning_rate": "the schedule goes on at its step with the new one",
    "recipe.optimizer.warmup_steps": "the schedule goes on at its step with the new ones",
    "recipe.schedule": "groups that do not fit the new window are given up, and their prompts asked again",
    "model.from_run": "the weights go on from the checkpoint",
    "model.path": "the weights go on from the checkpoint",
    "trainer.checkpoints": "the run goes on from what the new place holds, and begins anew where that is nothing",
    "tasks.dataset": "prompts that were not there before count as not yet seen",
    "tasks.prompt_format": "the curve's points from here on are of prompts that read differently",
    "seed": "prompts are drawn in another order from here on",
}
"""By the beginning of a setting's name: what its change does to a run under way."""
CHOSEN_ANEW = ("redis.port", "rpc.port", "grader.port", "forecaster.http_port", "local.prometheus_port")
"""Left out, they are free ones of each start."""


def check_run_folder(config: RunConfig, *, resume: bool) -> list[str]:
    """What `up` would say of the folder before it starts anything: a line for each setting that a resume changes.

    Raises UserError where `up` would.
    """
    folder = config.run_folder.absolute()
    changes: list[str] = []
    if resume and not run_folder.is_held(folder):
        changes = changes_since_start(folder / UP_FILE, config, config.trainer.checkpoints)
    run_folder.check_folder(folder, resume=resume)
    return changes


def changes_since_start(started_with: Path, settings: Settings, checkpoints: str | None) -> list[str]:
    """A line for each setting and each rule that is not as at the last start, whose settings are in `started_with`."""
    return [*changed_settings(started_with, settings), *resumed_rules(started_with.parent, checkpoints)]


def resumed_rules(folder: Path, checkpoints: str | None) -> list[str]:
    """A line for each of the run's rules that is not of this release. Checkpoints behind a URL are the trainer's."""
    found = checkpoint_rules(checkpoint_place(folder.absolute(), checkpoints))
    return [] if found is None else changed_rules(found.split, found.grading)


def changed_settings(started_with: Path, settings: Settings) -> list[str]:
    """A line for each setting that is not as in `started_with`, the file of the last start.

    Raises UserError if the curve would continue under other conditions.
    """
    if not started_with.exists():
        return []
    try:
        before = load_run_config(started_with)
    except UserError as error:
        return [f"settings of the last start are not compared: {str(error).splitlines()[0]}"]
    found = [one for one in differences(before, settings) if one.field not in CHOSEN_ANEW and not is_move(one)]
    if fixed := [one for one in found if one.field in FIXED]:
        sentences = "; ".join(one.sentence for one in fixed)
        raise UserError(
            f"--resume: {sentences}: the curve is measured on other prompts then; set what the run was started "
            "with, or choose another name for `run`"
        )
    lines = []
    for one in found:
        meaning = next(
            (f": {words}" for start, words in MEANING.items() if f"{one.field}.".startswith(f"{start}.")), ""
        )
        lines.append(f"resumed with another setting: {one.sentence}{meaning}")
    return lines
