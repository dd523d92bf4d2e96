"""Names of the files in a run's folder, and the place of its checkpoints.

Ports are in `connections.port_files`.
"""

from pathlib import Path

RUN_FILE = "run.json"
"""The resolved run file that every process reads."""
UP_FILE = "up.json"
"""The settings as they were given, free ports still 0: what continues the run."""
CUSTOM_FUNCTIONS = "own_parts"
"""Copies of the files in which the recipe's own parts are."""
FORMAT = "format.json"
"""The format of the other files."""
EVALUATIONS = "evaluations.jsonl"
"""One `EvaluationRecord` a line, in the order in which they were closed."""
INCARNATIONS = "incarnations.jsonl"
"""One `IncarnationRecord` a line."""
STEPS = "steps.jsonl"
"""One `StepRecord` a line."""
TASKS = "tasks.jsonl"
"""One `TaskMark` a line."""
SAMPLES = "samples.jsonl"
"""One `SamplesRecord` a line: what the model wrote at an evaluation."""
FORECASTS_SAID = "forecasts.jsonl"
"""One `ForecastRecord` a line, written by the forecaster."""
COMPUTE = "compute.json"
"""One `ComputeRecord`, replaced about once a second."""
FORECASTS = "forecasts.sqlite"
"""The forecaster's memory."""
FROZEN_FORECAST = "frozen_forecast.json"
"""The forecast made at half of the budget, a `FrozenForecast`."""
RESULT = "result.json"
"""The measured end and that forecast, a `RunResult`; with it the run is finished."""
ABLATION = "ablation.json"
"""The progress of a set of runs, a `SetRecord`; it is in the folder of the set."""
SWEEP = "sweep.jsonl"
"""One `SweepLine` a line: slices and choices; it is in the folder of the sweep."""
SWEEP_ANSWER = "sweep.json"
"""The answer of a sweep, replaced after each choice."""
SWEEP_PAGE = "sweep.html"
"""The answer as a page."""
LOGGED = "logged"
"""A folder with the progress of each logger, a `LoggedRecord`."""
BEFORE = "before.json"
"""The model or run that a new run began with, if that had cost compute: a `BeforeRecord`."""
WEIGHTS = "weights"
"""A folder with the versions that generators pull (`weights.transport: store`)."""
CHECKPOINTS = "checkpoints"
CONTROLLER = "controller.json"
"""The state of rank 0, written last into each checkpoint."""
EXPORT = "model"
"""The trained model, as Hugging Face lays it out."""
LOCK = ".lock"
"""Held by the process that runs the run; it holds that process's number."""
TRAINER_LOCK = ".trainer.lock"
"""Held by the trainer: after an upgrade the one before may still write its last checkpoint."""
LOGS = "logs"
"""A folder: a file for each process."""
EVENTS = "events.jsonl"
"""One `RunEvent` a line: what happened to the run, for its user."""
FAILURES = "failures"
"""A folder with the failures of each generator's verifiers."""
EPISODE_LOSSES = "episode_losses.json"
"""Environments that lose many episodes after an answered turn."""
REDIS = "redis"
"""A folder: the embedded server's configuration and data."""
GRADER_RUN_FILE = "grader.json"
"""The run file without credentials, for the grader."""
MONITOR = "monitor"
"""A folder with the configuration of this machine's Prometheus and Grafana."""
TARGETS = "targets.json"
"""The file of that folder that names the pages which Prometheus scrapes."""
RECORDED = "recorded"
"""A folder with the steps that the flight recorder kept (`rollcast.recorded`)."""
TENSORBOARD = "tensorboard"
"""A folder of event files, unless the run file names another one."""
Place = Path | str
"""A folder, or a URL."""


def parse_location(text: str) -> Place:
    """The location that a run file names."""
    return text.rstrip("/") if "://" in text else Path(text)


def earlier_run_place(text: str) -> Place:
    """The checkpoints of an earlier run, given its folder or the checkpoints' own location."""
    location = parse_location(text)
    inner = location / CHECKPOINTS if isinstance(location, Path) else None
    return inner if inner is not None and inner.is_dir() else location


def checkpoint_place(run_folder: Path, checkpoints: str | None) -> Place:
    """The location for one run: runs that share one each have a subfolder of it.

    `checkpoints`: trainer.checkpoints.
    """
    return _place_of_run(run_folder, checkpoints, CHECKPOINTS)


def weight_store_place(run_folder: Path, location: str | None) -> Place:
    """The versions of one run. `location`: weights.store.location."""
    return _place_of_run(run_folder, location, WEIGHTS)


def _place_of_run(run_folder: Path, text: str | None, own_folder: str) -> Place:
    if text is None:
        return run_folder / own_folder
    location = parse_location(text)
    return (
        location / run_folder.name
        if isinstance(location, Path)
        else f"{location}/{run_folder.name}"
    )
