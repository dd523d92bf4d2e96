"""The format of a run's folder. Folders of older releases are read; those of newer releases are refused.

0   no format.json
1   evaluations hold start-up, devices, truncation and the start of their incarnation; incarnations.jsonl holds the
    start before the first evaluation
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.files import FORMAT
from rollcast.runfolder.records import STRICT, Count, read_record
from rollcast.runfolder.writing import replace_json

NEWEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FormatRecord:
    """format.json."""

    __pydantic_config__ = STRICT

    format: Count


def check_format(folder: Path) -> int:
    """The folder's format. Raises UserError if this release cannot read it."""
    path = folder / FORMAT
    try:
        found = read_record(path, FormatRecord).format
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); fix the permissions") from error
    except ValueError:
        raise UserError(f'{path}: does not say a format; write {{"format": {NEWEST_FORMAT}}} into it') from None
    if found > NEWEST_FORMAT:
        raise UserError(
            f"run folder {folder}: is written in format {found}, this Rollcast knows {NEWEST_FORMAT} at most; "
            "use the release that wrote it, or a newer one"
        )
    return found


def mark_format(folder: Path) -> None:
    """Declare that records appended from now on have the newest format.

    Lines of an older format stay as they are: each record is read by itself. Raises UserError as `check_format`, or if
    the disk refuses.
    """
    if check_format(folder) < NEWEST_FORMAT:
        replace_json(folder / FORMAT, {"format": NEWEST_FORMAT})
