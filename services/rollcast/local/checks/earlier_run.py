"""Whether model.from_run has the checkpoint that the run begins with."""

from pathlib import Path

from rollcast.local.checks.check import Start
from rollcast.runfolder.files import earlier_run_place
from rollcast.runfolder.kept_checkpoints import check_earlier_run, kept_versions

SETTINGS = ("model.from_run", "model.from_step")


def check(start: Start) -> None:
    """Only the trainer looks behind a URL."""
    model = start.config.model
    earlier_location = None if model.from_run is None else earlier_run_place(model.from_run)
    if model.from_run is not None and isinstance(earlier_location, Path):
        check_earlier_run(
            model.from_run, model.from_step, [step for _, step in kept_versions(earlier_location)]
        )
