"""Opens the destination of an entry of `log`. Only the package of that kind is imported."""

from pathlib import Path
from typing import Any

from rollcast.config.loggers import Log, MlflowLog, TensorBoardLog
from rollcast.loggers.destination import Destination
from rollcast.runfolder.files import TENSORBOARD


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
