"""Whether the run may begin in its folder, or go on there under the settings of now."""

from rollcast.local.checks.check import Start
from rollcast.local.resumed import check_run_folder

SETTINGS = ("folder", "run")


def check(start: Start) -> None:
    if start.resume is not None:
        start.changes = check_run_folder(start.config, resume=start.resume)
