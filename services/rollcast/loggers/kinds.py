"""Opens the destination of an entry of `log`. Only the package of that kind is imported."""

from __future__ import annotations

from typing import Any

from rollcast.config.loggers import Log, MlflowLog, TensorBoardLog
from rollcast.config.run import RunConfig
from rollcast.loggers.destination import Destination
from rollcast.runfolder.files import TENSORBOARD


def open_destination(log: Log, config: RunConfig, run_id: str | None) -> Destination:
    """`run_id`: the destination's id of the run from an earlier process."""
    if isinstance(log, TensorBoardLog):
        from rollcast.loggers.tensorboard_files import TensorBoardFiles

        return TensorBoardFiles(log.folder or config.run_folder / TENSORBOARD, settings_of(config))
    if isinstance(log, MlflowLog):
        from rollcast.loggers.mlflow_run import MlflowRun

        return MlflowRun(log, config.run, settings_of(config), run_id)
    from rollcast.loggers.wandb_run import WandbRun

    return WandbRun(log, config.run, config.run_folder, settings_of(config), run_id)


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The run file's settings, secrets hidden."""
    return config.model_dump(mode="json")
