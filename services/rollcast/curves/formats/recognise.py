"""Which format a file or folder is of. The one rule: the most particular mark first, tables last."""

from pathlib import Path
from typing import Protocol

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.formats import (
    delimited,
    json_rows,
    mlflow_folder,
    mlflow_store,
    nemo_rl,
    open_instruct,
    prime_rl,
    tensorboard,
    wandb_api,
    wandb_offline,
)
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.one_line_console import OPENRLHF, TRL, VERL
from rollcast.curves.sheet import Sheet, TooMuch
from rollcast.runfolder.files import EVALUATIONS


class Format(Protocol):
    """A format of a log, most often a module; to add one, write it and name it in `FORMATS`."""

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
    VERL,
    OPENRLHF,
    nemo_rl,
    open_instruct,
    prime_rl,
    TRL,
    json_rows,
    mlflow_folder,
)
"""In the order in which they are asked. A console may begin with `[` or `{` as JSON does, so JSON comes after them."""


def read_sheet(source: str, tell: Tell, *, is_growing: bool = False) -> Sheet:
    """The columns of a file, a folder or a run of W&B. `is_growing`: a trainer may be writing the file.

    Raises UserError: why it cannot be read, and what would help.
    """
    if source.startswith(wandb_api.PREFIX):
        return wandb_api.read(source)
    path = Path(source)
    try:
        log = LogFile(_file_in(path) if path.is_dir() else path, tell, is_growing)
        is_folder = log.path.is_dir()
        if not is_folder and not log.content.strip():
            raise UserError(f"{log.path}: is empty; give a file with evaluations")
        for format in FOLDER_FORMATS if is_folder else FORMATS:
            if format.recognises(log):
                return format.read(log)
        if not is_folder:
            return delimited.read(log)
    except TooMuch as error:
        raise UserError(f"{source}: {error}; give the evaluations only") from None
    raise UserError(
        f"run folder {source}: holds no {EVALUATIONS}; give the folder of one run, of Rollcast, TensorBoard, W&B, "
        "MLflow or TRL"
    )


def _file_in(folder: Path) -> Path:
    """The file in a folder that holds the log of one run of Rollcast, W&B or TRL; else the folder itself."""
    if (folder / EVALUATIONS).is_file():
        return folder / EVALUATIONS
    if tensorboard.event_files(folder):
        return folder
    runs = [file for file in folder.glob(f"*{wandb_offline.ENDING}") if file.is_file()]
    if len(runs) == 1:
        return runs[0]
    state = folder / json_rows.TRL_STATE_FILE
    return state if state.is_file() else folder
