"""In which format a run's folder is written: folders of older releases are read, those of newer ones refused.

0   no format.json
1   evaluations tell start-up, devices, truncation and the start of their incarnation; incarnations.jsonl tells the
    latter before the first of them
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.files import FORMAT
from rollcast.runfolder.records import STRICT, Count, read_record
from rollcast.runfolder.writing import replace_json

NEWEST = 1


@dataclass(frozen=True, slots=True)
class FormatRecord:
    """format.json."""

    __pydantic_config__ = STRICT

    format: Count


def check_format(folder: Path) -> int:
    """The folder's format. Raises UserError where this release cannot read it."""
    path = folder / FORMAT
    try:
        found = read_record(path, FormatRecord).format
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); mend the permissions") from error
    except ValueError:
        raise UserError(f'{path}: does not say a format; write {{"format": {NEWEST}}} into it') from None
    if found > NEWEST:
        raise UserError(
            f"run folder {folder}: is written in format {found}, this Rollcast knows {NEWEST} at most; "
            "use the release that wrote it, or a newer one"
        )
    return found


def mark_format(folder: Path) -> None:
    """What is appended from now on is of the newest format. Raises UserError as `check_format`, or if the disk refuses.

    Lines of an older format stay as they are: each record is read by itself.
    """
    if check_format(folder) < NEWEST:
        replace_json(folder / FORMAT, {"format": NEWEST})
