"""Which format a file or folder is of. The one rule: the most particular mark first, tables last."""

from pathlib import Path
from typing import Protocol

from rollcast.config.errors import UserError
from rollcast.curves.bounds import TooMuch
from rollcast.curves.formats import (
    delimited,
    json_rows,
    mlflow_folder,
    mlflow_metric,
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
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.left_out import Tell
from rollcast.curves.sheet import Sheet
from rollcast.runfolder.files import EVALUATIONS


class Format(Protocol):
    """A format of a log. Each is a module; to add one, write it and name it in `FORMATS`."""

    def recognises(self, log: LogFile) -> bool:
        """Whether the log is of this format, by a mark that no other format has."""

    def read(self, log: LogFile) -> Sheet:
        """The columns of the log. Raises UserError: one sentence on the problem. Raises TooMuch."""


FOLDER_FORMATS: tuple[Format, ...] = (tensorboard, mlflow_folder)
FORMATS: tuple[Format, ...] = (
    delimited,
    mlflow_store,
    wandb_offline,
    tensorboard,
    json_rows,
    verl_console,
    openrlhf,
    nemo_rl,
    open_instruct,
    prime_rl,
    trl_console,
    mlflow_metric,
)


def read_sheet(source: str, tell: Tell, *, is_growing: bool = False) -> Sheet:
    """The columns of a file, a folder or a run of W&B. `is_growing`: a trainer may be writing the file.

    Raises UserError: why it cannot be read, and what would help.
    """
    if source.startswith(wandb_api.PREFIX):
        return wandb_api.read(source)
    try:
        log = LogFile(_file_of(Path(source)), tell, is_growing)
        for format in FOLDER_FORMATS if log.path.is_dir() else FORMATS:
            if format.recognises(log):
                return format.read(log)
        if not log.path.is_dir():
            return delimited.read(log)
    except TooMuch as error:
        raise UserError(f"{source}: {error}; give the evaluations only") from None
    raise UserError(
        f"run folder {source}: holds no {EVALUATIONS}; give the folder of one run, of Rollcast, TensorBoard, W&B, "
        "MLflow or TRL"
    )


def _file_of(path: Path) -> Path:
    """The file in a folder that holds the log of one run of Rollcast, W&B or TRL; else the path itself."""
    if not path.is_dir():
        return path
    runs = [file for file in path.glob(f"*{wandb_offline.ENDING}") if file.is_file()]
    if (path / EVALUATIONS).is_file():
        return path / EVALUATIONS
    if tensorboard.event_files(path):
        return path
    if len(runs) == 1:
        return runs[0]
    return path / trl.STATE_FILE if (path / trl.STATE_FILE).is_file() else path
