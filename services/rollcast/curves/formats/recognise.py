"""Which format a file or folder is of.

The one rule: the most particular mark first, tables last.
"""

import re
from pathlib import Path
from typing import Protocol

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.formats import (
    delimited,
    framed_tables,
    html_tables,
    json_rows,
    key_values,
    mlflow_folder,
    mlflow_store,
    nemo_rl,
    notebook,
    open_instruct,
    pasted_tables,
    prime_rl,
    tensorboard,
    wandb_api,
    wandb_offline,
)
from rollcast.curves.formats.known_files import log_in
from rollcast.curves.formats.log_file import LogFile, OtherFormat, unknown_form
from rollcast.curves.formats.one_line_console import OPENRLHF, TRL, VERL
from rollcast.curves.sheet import Sheet, TooMuch
from rollcast.runfolder.files import EVALUATIONS


class Format(Protocol):
    """A format of a log, most often a module; to add one, write it and name it in `FORMATS`."""

    def recognises(self, log: LogFile) -> bool:
        """Whether the log is of this format, by a mark that no other format has."""

    def read(self, log: LogFile) -> Sheet:
        """The columns of the log. Raises UserError: one sentence on the problem. Raises TooMuch."""


_NUMBER = re.compile(r"[-+]?\d{1,20}(\.\d{0,20})?%?")
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
    html_tables,
    mlflow_folder,
    framed_tables,
    pasted_tables,
    key_values,
)
"""In the order in which they are tried. A console may begin with `[` or `{` as JSON does, so JSON
comes after them."""


def read_sheet(source: str, tell: Tell, *, is_growing: bool = False) -> Sheet:
    """The columns of a file, a folder or a run of W&B. `is_growing`: a trainer may be writing the
    file.

    Raises UserError: why it cannot be read, and what would help.
    """
    if source.startswith(wandb_api.PREFIX):
        return wandb_api.read_run(source)
    path = Path(source)
    try:
        log = LogFile(log_in(path) if path.is_dir() else path, tell, is_growing)
        is_folder = log.path.is_dir()
        if not is_folder and not log.content.strip():
            raise UserError(f"{log.path}: is empty; give a file with evaluations")
        if not is_folder:
            return (
                notebook.read(log, _sheet_of_file)
                if notebook.recognises(log)
                else _sheet_of_file(log)
            )
        for format in FOLDER_FORMATS:
            if format.recognises(log):
                return format.read(log)
    except TooMuch as error:
        raise UserError(f"{source}: {error}; give the evaluations only") from None
    raise UserError(
        f"run folder {source}: holds no {EVALUATIONS}; give the folder of one run, of Rollcast, "
        "TensorBoard, W&B, MLflow or TRL"
    )


def _sheet_of_file(log: LogFile) -> Sheet:
    """The columns of a file in the first format that reads it, else as a table.

    Raises UserError, TooMuch.
    """
    first_error: OtherFormat | None = None
    for format in FORMATS:
        try:
            if format.recognises(log):
                return format.read(log)
        except OtherFormat as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return _table(log)


def _table(log: LogFile) -> Sheet:
    """A text that no format recognises, as a table.

    Raises UserError: it is not a table of numbers either.
    """
    sheet = delimited.read(log)
    num_numbers = [
        int(np.isfinite(column.numbers.values).sum()) for column in sheet.columns.values()
    ]
    # Share of the rows that have a number in some column of a table: prose has fewer
    is_of_numbers = max(num_numbers, default=0) >= 0.5 * sheet.num_rows
    # A header of a value is a first line of a log: `step 10 accuracy 0.2`.
    has_values = sheet.format == delimited.NAMES[" "] and any(map(_NUMBER.fullmatch, sheet.columns))
    # A step and a reading
    if len(sheet.columns) < 2 or not is_of_numbers or has_values:
        raise unknown_form(log.path)
    return sheet
