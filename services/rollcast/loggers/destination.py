"""A destination that a run is logged to. Only the package of its kind is imported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rollcast.config.loggers import Log, MlflowLog, TensorBoardLog
from rollcast.loggers.entries import Entry
from rollcast.runfolder.files import TENSORBOARD


class RefusedError(Exception):
    """The destination will never accept these entries, so they are not sent again."""


class Destination(Protocol):
    """Every exception except `RefusedError` means that the destination does not answer; the call is repeated later.

    `write` may receive the same entries twice: a process that was killed does not know whether the last ones arrived.
    """

    @property
    def run_id(self) -> str | None:
        """The destination's name of the run; None before the first `open`."""

    def open(self) -> None:
        """Create or continue the run. Called once, before the first `write`."""

    def write(self, entries: Sequence[Entry]) -> None: ...

    def close(self) -> None:
        """Finish: this process writes no more entries."""


def open_destination(log: Log, run_folder: Path, settings: dict[str, Any], run_id: str | None) -> Destination:
    """`settings`: the run file's, without secrets. `run_id`: the destination's id from an earlier process."""
    run = run_folder.name
    if isinstance(log, TensorBoardLog):
        from rollcast.loggers.tensorboard_files import TensorBoardFiles

        return TensorBoardFiles(log.folder or run_folder / TENSORBOARD, settings)
    if isinstance(log, MlflowLog):
        from rollcast.loggers.mlflow_run import MlflowRun

        return MlflowRun(log, run, settings, run_id)
    from rollcast.loggers.wandb_run import WandbRun

    return WandbRun(log, run, run_folder, settings, run_id)
