"""The settings of a resumed run that differ from its last start."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.other_names import removed_settings
from rollcast.config.resolved import differences
from rollcast.config.rules_versions import changed_rules
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.custom_function_copies import is_move
from rollcast.local.resume_conditions import check_checkpoint, check_curve
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.files import UP_FILE, checkpoint_place
from rollcast.runfolder.rules import checkpoint_rules

EFFECTS_OF_CHANGES = {
    "recipe.optimizer.learning_rate": "the schedule goes on at its step with the new one",
    "recipe.optimizer.warmup_steps": "the schedule goes on at its step with the new ones",
    "recipe.schedule": (
        "groups that do not fit the new window are given up, and their prompts asked again"
    ),
    "model.from_run": "the weights go on from the checkpoint",
    "model.path": "the weights go on from the checkpoint",
    "trainer.checkpoints": (
        "the run goes on from what the new place holds, and begins anew where that is nothing"
    ),
    "tasks.prompt_format": "the curve's points from here on are of prompts that read differently",
}
"""Beginning of a setting's name -> what its change does to a resumed run. The start prints it."""
CHOSEN_ANEW = (
    "redis.port",
    "rpc.port",
    "grader.port",
    "forecaster.http_port",
    "local.prometheus_port",
)
"""Left out, they are free ones of each start."""


def check_run_folder(config: RunConfig, *, resume: bool) -> list[str]:
    """Lines that `up` would print about the folder before it starts anything: one for each setting
    that a resume changes.

    Raises UserError where `up` would.
    """
    folder = config.run_folder.absolute()
    changes: list[str] = []
    if resume:
        check_begun(folder, config.trainer.checkpoints)
    if resume and not run_folder.is_held(folder):
        changes = changes_since_start(folder, config)
    run_folder.check_folder(folder, resume=resume)
    return changes


def check_begun(folder: Path, checkpoints: str | None) -> None:
    """Raises UserError if no run was ever started in this folder, as far as this machine knows.

    `folder`: absolute. `checkpoints`: trainer.checkpoints.
    """
    checkpoint_location = checkpoint_place(folder, checkpoints)
    if (
        not isinstance(checkpoint_location, Path)
        or checkpoint_rules(checkpoint_location) is not None
    ):
        return
    if run_folder.has_history(folder) or (folder / UP_FILE).exists():
        return
    runs = sorted(file.parent.name for file in folder.parent.glob(f"*/{UP_FILE}"))
    # Runs that are named where another one is meant.
    max_names = 3
    close_names = difflib.get_close_matches(folder.name, runs, max_names)
    meant = "this folder has no run."
    if close_names:
        meant = f"did you mean {' or '.join(close_names)}?"
    elif runs:
        meant = (
            f"its runs are {', '.join(runs[:max_names])}{', ...' if len(runs) > max_names else '.'}"
        )
    raise UserError(
        f"--resume: run = {folder.name}: no run of this name was started in {folder.parent}; "
        f"{meant} Leave out --resume to begin a run"
    )


def changes_since_start(folder: Path, config: RunConfig) -> list[str]:
    """A line for each setting and each rule that is not as at the last start of the run in
    `folder`.

    Raises UserError if the run cannot go on under the settings of now.
    """
    newest = checkpoint_rules(checkpoint_place(folder.absolute(), config.trainer.checkpoints))
    rules = [] if newest is None else changed_rules(newest.split, newest.grading)
    if not (folder / UP_FILE).exists():
        return rules
    dropped: list[tuple[str, object]] = []
    try:
        old_config = load_run_config(folder / UP_FILE, dropped=dropped)
    except UserError as error:
        return [
            f"settings of the last start are not compared: {str(error).splitlines()[0]}",
            *rules,
        ]
    changes = [
        difference
        for difference in differences(old_config, config)
        if difference.field not in CHOSEN_ANEW and not is_move(difference)
    ]
    check_curve(changes, old_config.tasks, config.tasks)
    if newest is not None:  # of checkpoints behind a URL the trainer says so
        check_checkpoint(changes, old_config.model, config.model)
    lines = _removed_since(dropped)
    for change in changes:
        effect = next(
            (
                f": {words}"
                for start, words in EFFECTS_OF_CHANGES.items()
                if f"{change.field}.".startswith(f"{start}.")
            ),
            "",
        )
        lines.append(f"resumed with another setting: {change.sentence}{effect}")
    return [*lines, *rules]


def _removed_since(dropped: Iterable[tuple[str, object]]) -> list[str]:
    """A line for each setting of the last start that no longer exists.

    Raises UserError if the curve would mean something else.
    """
    lines = []
    for field, value in dropped:
        accepted = removed_settings()[field].accepted
        if field == "tasks.verifiers.best_score":
            raise UserError(
                f"--resume: {field} = {value} at the last start is not a setting any more, and a "
                f"bare score is one of {accepted:g}: the curve means something else then; begin a "
                "run of another name"
            )
        lines.append(
            f"resumed with another setting: {field} {value} -> {accepted}, not a setting any more"
        )
    return lines
