"""The format of a run's folder. This release reads and writes format 1 and refuses every other."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rollcast.config.errors import UserError
from rollcast.runfolder.files import EVALUATIONS, FORMAT, STEPS
from rollcast.runfolder.records import STRICT, read_record
from rollcast.runfolder.writing import replace_json

NEWEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FormatRecord:
    """format.json."""

    __pydantic_config__ = STRICT

    format: Annotated[int, Field(ge=1)]


def check_format(folder: Path) -> None:
    """Raises UserError if the folder holds records that this release cannot read."""
    path = folder / FORMAT
    try:
        found = read_record(path, FormatRecord).format
    except FileNotFoundError:
        if any(os.path.exists(folder / name) for name in (EVALUATIONS, STEPS)):
            raise _unknown(path) from None
        return
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); fix the permissions") from error
    except ValueError:
        raise _unknown(path) from None
    if found > NEWEST_FORMAT:
        raise UserError(
            f"run folder {folder}: is written in format {found}, this Rollcast knows {NEWEST_FORMAT} at most; "
            "use the release that wrote it, or a newer one"
        )


def _unknown(path: Path) -> UserError:
    return UserError(f'{path}: does not say a format; write {{"format": {NEWEST_FORMAT}}} into it')


def mark_format(folder: Path) -> None:
    """Record the format of later records. Raises UserError as `check_format`, or if the disk refuses."""
    check_format(folder)
    if not os.path.exists(folder / FORMAT):
        replace_json(folder / FORMAT, {"format": NEWEST_FORMAT})
