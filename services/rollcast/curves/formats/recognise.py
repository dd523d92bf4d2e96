"""Which format a file or folder is of. The one rule: the most particular mark first, tables and JSON last."""

from __future__ import annotations

from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.bounds import TooMuch
from rollcast.curves.formats import (
    delimited,
    json_rows,
    mlflow_files,
    mlflow_store,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    tensorboard,
    trl,
    trl_console,
    verl_console,
    wandb_api,
    wandb_offline,
)
from rollcast.curves.formats.content import MAX_FILE_BYTES, as_text, read_bytes
from rollcast.curves.formats.found import Found, TextFormat
from rollcast.curves.left_out import Tell

CONSOLES: tuple[TextFormat, ...] = (verl_console, openrlhf, nemo_rl, open_instruct, prime_rl, trl_console)
"""Logs that a trainer printed, told by a line that no other writes."""
MAX_EVENT_FILES = 200


def read_source(source: str, tell: Tell) -> Found:
    """The rows of a file, a folder or a run of W&B. Raises UserError: what it is not, and what would help."""
    if source.startswith(wandb_api.PREFIX):
        return wandb_api.found(source)
    path = Path(source)
    try:
        return _of_folder(path, tell) if path.is_dir() else _of_file(path, tell)
    except TooMuch as error:
        raise UserError(f"{source}: {error}; give the evaluations only") from None


def _of_file(path: Path, tell: Tell) -> Found:
    content = read_bytes(path)
    if not content.strip():
        raise UserError(f"{path}: is empty; give a file with evaluations")
    if mlflow_store.recognises(content):
        return Found.of_rows(mlflow_store.NAME, mlflow_store.rows(path))
    if wandb_offline.recognises(content):
        return Found.of_rows(wandb_offline.NAME, wandb_offline.rows(content, path, tell))
    if tensorboard.recognises(content):
        return Found.of_rows(tensorboard.NAME, tensorboard.rows([content], path, tell))
    text = as_text(content, path, tell)
    if json_rows.looks_like_json(text):
        return json_rows.found(text, path, tell)
    for console in CONSOLES:
        if console.recognises(text):
            return Found.of_rows(console.NAME, console.rows(text, path, tell))
    if mlflow_files.is_metric_file(text):
        return Found.of_rows(mlflow_files.METRIC_NAME, mlflow_files.metric_rows(text, path))
    return delimited.found(text, path, tell)


def _of_folder(folder: Path, tell: Tell) -> Found:
    """The files by which a folder is told: events of one run, a W&B run, MLflow's store, a checkpoint of TRL."""
    events = sorted(path for path in folder.iterdir() if tensorboard.FILE_MARK in path.name and path.is_file())
    if events:
        if len(events) > MAX_EVENT_FILES:
            raise UserError(f"{folder}: holds {len(events)} event files; give the folder of one run, or one file")
        left, contents = MAX_FILE_BYTES, []
        for path in events:
            contents.append(read_bytes(path, left))
            left -= len(contents[-1])
        return Found.of_rows(tensorboard.NAME, tensorboard.rows(contents, folder, tell))
    runs = [path for path in folder.glob(f"*{wandb_offline.ENDING}") if path.is_file()]
    if len(runs) == 1:
        return _of_file(runs[0], tell)
    if (folder / trl.STATE_FILE).is_file():
        return _of_file(folder / trl.STATE_FILE, tell)
    if mlflow_files.is_folder(folder):
        return Found.of_rows(mlflow_files.FOLDER_NAME, mlflow_files.folder_rows(folder, tell))
    raise UserError(
        f"run folder {folder}: holds no evaluations.jsonl; give the folder of one run, of Rollcast, TensorBoard, W&B, "
        "MLflow or TRL"
    )
