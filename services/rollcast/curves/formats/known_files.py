"""The file in a folder that holds the log of one run, by the names that frameworks give it."""

import re
from pathlib import Path

from rollcast.curves.formats import json_rows, tensorboard, wandb_offline
from rollcast.runfolder.files import EVALUATIONS

LOG_NAMES = ("progress.csv", "result.json", "metrics.jsonl", "metrics.csv", "log_history.json")
"""Written by stable-baselines3 and RLlib, RLlib, tinker, Lightning, TRL."""
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_GLOBAL_STEP = re.compile(rb'"global_step":\s*(\d{1,12})')


def log_in(folder: Path) -> Path:
    """The file that holds the log of the folder's run, or else the folder itself.

    Of TRL's checkpoints it is the state of the newest one, which holds the whole history.
    """
    if (folder / EVALUATIONS).is_file():
        return folder / EVALUATIONS
    if tensorboard.event_files(folder):
        return folder
    runs = [file for file in folder.glob(f"*{wandb_offline.ENDING}") if file.is_file()]
    if len(runs) == 1:
        return runs[0]
    if (state := _newest_state(folder)) is not None:
        return state
    return next((folder / name for name in LOG_NAMES if (folder / name).is_file()), folder)


def _newest_state(folder: Path) -> Path | None:
    """The trainer_state.json of the most steps, of the folder itself or of a checkpoint in it."""
    states: list[tuple[int, Path]] = []
    for checkpoint in folder.iterdir():
        checkpoint_match = _CHECKPOINT.fullmatch(checkpoint.name)
        state = checkpoint / json_rows.TRL_STATE_FILE
        if checkpoint_match is not None and state.is_file():
            states.append((int(checkpoint_match[1]), state))
    folder_state = folder / json_rows.TRL_STATE_FILE
    newest = max(states, default=None)
    if not folder_state.is_file():
        return None if newest is None else newest[1]
    # A resumed run writes newer checkpoints next to the state that its first part left at its end.
    if newest is not None and newest[0] > _read_last_step(folder_state):
        return newest[1]
    return folder_state


def _read_last_step(state: Path) -> int:
    """Its last step, or 0."""
    step_match = _GLOBAL_STEP.search(state.read_bytes())
    return int(step_match[1]) if step_match else 0
