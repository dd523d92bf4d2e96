"""The run file's schema: everything one run needs, read by every process of it."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rollcast.config.autoscaler import Autoscaler
from rollcast.config.base import RUN_NAME, Settings
from rollcast.config.connections import Http, Redis, Rpc, Weights
from rollcast.config.loggers import Log
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.record import StepRecording
from rollcast.config.run_end import Budget, StopWhen
from rollcast.config.services import Forecaster, Generator, Grader, Local, Trainer
from rollcast.config.tasks import Tasks


class RunConfig(Settings):
    run: Annotated[str, Field(pattern=RUN_NAME)]
    """Name of the run: label `run` of every metric and part of every Redis key. Lower case, digits,
    hyphens."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Seed of prompt order, sampling and initialisation. Wire 1 carries 32 bits."""
    folder: Path = Path("runs")
    """Checkpoints, evaluations, logs and the forecaster's history go to `folder`/`run`."""
    model: Model
    """The model to train."""
    tasks: Tasks = Tasks()
    """Prompts, verifiers, evaluation."""
    recipe: Recipe = Recipe()
    """The algorithm."""
    budget: Budget = Budget()
    """When the run ends."""
    stop_when: StopWhen | None = None
    """When it ends earlier, on its own forecast's advice. None = never."""
    log: tuple[Log, ...] = ()
    """Loggers in addition to the run's folder, each kind at most once. Empty = nowhere."""
    record: StepRecording = StepRecording()
    """Steps that are kept to be replayed. Off by default."""
    generator: Generator = Generator()
    trainer: Trainer = Trainer()
    weights: Weights = Weights()
    redis: Redis = Redis()
    rpc: Rpc = Rpc()
    http: Http = Http()
    grader: Grader = Grader()
    forecaster: Forecaster = Forecaster()
    autoscaler: Autoscaler = Autoscaler()
    local: Local = Local()

    @property
    def grader_rpc(self) -> Rpc:
        """How the grader is reached and served: its own address and token,
        the certificates of rpc.
        """
        grader = self.grader
        return Rpc(
            host=grader.host,
            port=grader.port,
            bind=grader.bind,
            token=grader.token,
            tls=self.rpc.tls,
        )

    @property
    def longest_grading_seconds(self) -> float:
        """Longest time from when a generator starts grading a completion to the verdict."""
        grading = self.tasks.grading
        return (
            self.grader.patience_seconds
            if grading.sandbox == "remote"
            else grading.longest_wall_seconds
        )

    @property
    def run_folder(self) -> Path:
        return self.folder / self.run
