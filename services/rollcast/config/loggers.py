"""Loggers that receive a run in addition to its own folder."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import WEB_ADDRESS, Settings


class TensorBoardLog(Settings):
    kind: Literal["tensorboard"] = "tensorboard"
    """Write event files."""
    folder: Path | None = None
    """Folder of the event files. None = tensorboard in the run folder."""


class MlflowLog(Settings):
    kind: Literal["mlflow"] = "mlflow"
    """Send to an MLflow tracking server; credentials are those of MLflow's own environment
    variables."""
    url: Annotated[str, Field(pattern=WEB_ADDRESS)]
    """Address of the tracking server, as http://host:5000."""
    experiment: str = "rollcast"
    """Name of the experiment, which is created if it does not exist."""


class WandbLog(Settings):
    kind: Literal["wandb"] = "wandb"
    """Send to Weights & Biases; the key is that of `wandb login` or of WANDB_API_KEY."""
    project: str = "rollcast"
    """Name of the project."""
    entity: str | None = None
    """User or team. None = the key's default."""
    mode: Literal["online", "offline"] = "online"
    """offline = files under wandb in the run folder, which `wandb sync` sends later."""


Log = Annotated[TensorBoardLog | MlflowLog | WandbLog, Field(discriminator="kind")]
