"""The run file: everything one run needs, read by every process of it."""

from __future__ import annotations

import os
import reprlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, model_validator

from rollcast.config.autoscaler import Autoscaler
from rollcast.config.base import Settings
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.services import (
    Budget,
    Forecaster,
    Generator,
    Grader,
    Http,
    Local,
    Redis,
    Rpc,
    StopWhen,
    Trainer,
    Weights,
)
from rollcast.config.tasks import Tasks
from rollcast.config.yaml_loader import load_yaml

MAX_FILE_BYTES = 1 << 20
_SECRETS = ("password", "token")
_WANTS_A_MAPPING = ("model_type", "model_attributes_type")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


class RunConfig(Settings):
    run: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """Name of the run: label `run` of every metric and part of every Redis key. Lower case, digits, hyphens."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Of prompt order, sampling and initialisation. Wire 1 carries 32 bits."""
    folder: Path = Path("runs")
    """Checkpoints, evaluations, logs and the forecaster's history go to `folder`/`run`."""
    model: Model
    """What is trained."""
    tasks: Tasks = Tasks()
    """Prompts, verifiers, evaluation."""
    recipe: Recipe = Recipe()
    """The algorithm."""
    budget: Budget = Budget()
    """When the run ends."""
    stop_when: StopWhen | None = None
    """When it ends earlier, on its own forecast's advice. None = never."""
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

    @model_validator(mode="after")
    def _lengths_fit_the_model(self) -> RunConfig:
        need = self.recipe.max_prompt_tokens + self.recipe.max_completion_tokens
        if need > self.model.max_length:
            raise ValueError(
                f"recipe.max_prompt_tokens {self.recipe.max_prompt_tokens} + recipe.max_completion_tokens "
                f"{self.recipe.max_completion_tokens} = {need} exceeds model.max_length {self.model.max_length}; "
                "lower the first two or raise the last"
            )
        return self

    @model_validator(mode="after")
    def _groups_fit_a_generator(self) -> RunConfig:
        groups = {
            "recipe.rollouts_per_prompt": self.recipe.most_rollouts_per_prompt,
            "tasks.evaluation.rollouts_per_prompt": self.tasks.evaluation.rollouts_per_prompt,
            "tasks.downstream.rollouts_per_prompt": self.tasks.most_evaluation_rollouts,
        }
        for setting, rollouts in groups.items():
            if rollouts > self.generator.slots:
                raise ValueError(
                    f"{setting} {rollouts}: the rollouts of one prompt stay together, and a generator has "
                    f"generator.slots {self.generator.slots}; lower the first or raise the last"
                )
        return self

    @model_validator(mode="after")
    def _graders_have_time(self) -> RunConfig:
        deadline, patience = self.tasks.grading.longest_seconds, self.grader.patience_seconds
        if self.tasks.grading.sandbox == "remote" and patience <= deadline:
            raise ValueError(
                f"grader.patience_seconds {patience:g} must exceed tasks.grading.deadline_seconds {deadline:g}: a grading "
                "may take that long once its turn has come; raise the first or lower the last"
            )
        return self

    @property
    def grader_rpc(self) -> Rpc:
        """How the grader is reached and served: its own address and token, the certificates of rpc."""
        grader = self.grader
        return Rpc(host=grader.host, port=grader.port, bind=grader.bind, token=grader.token, tls=self.rpc.tls)

    @property
    def longest_grading_seconds(self) -> float:
        """From a generator's taking up a completion to its verdict, or to the end of its patience."""
        grading = self.tasks.grading
        return self.grader.patience_seconds if grading.sandbox == "remote" else grading.longest_seconds

    @property
    def run_folder(self) -> Path:
        return self.folder / self.run


def load_run_config(path: Path) -> RunConfig:
    """Read a run file (YAML or JSON).

    Raises UserError: one sentence for each wrong field, with its value and what is allowed.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"run file {path}: larger than {MAX_FILE_BYTES} bytes; it should hold settings only")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"run file {path}: cannot be read ({error.strerror}); give the path of a YAML file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"run file {path}: byte {error.start} is not UTF-8; save it as UTF-8 text") from error
    data = load_yaml(text, f"run file {path}")
    if not isinstance(data, dict):
        raise UserError(f"run file {path}: holds {type(data).__name__}, needs a mapping such as `run: demo`")
    return parse_run_config(data, source=str(path))


def parse_run_config(data: dict[str, Any], *, source: str) -> RunConfig:
    """Check settings that were already read; secrets in the environment win over the file's."""
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise UserError("\n".join(describe_errors(error, source))) from None
    updates: dict[str, Any] = {}
    if password := os.environ.get("ROLLCAST_REDIS_PASSWORD"):
        updates["redis"] = config.redis.model_copy(update={"password": SecretStr(password)})
    if token := os.environ.get("ROLLCAST_RPC_TOKEN"):
        updates["rpc"] = config.rpc.model_copy(update={"token": SecretStr(token)})
    if token := os.environ.get("ROLLCAST_GRADER_TOKEN"):
        updates["grader"] = config.grader.model_copy(update={"token": SecretStr(token)})
    if token := os.environ.get("ROLLCAST_HTTP_TOKEN"):
        updates["http"] = config.http.model_copy(update={"token": SecretStr(token)})
    return config.model_copy(update=updates)


def describe_errors(error: ValidationError, source: str) -> list[str]:
    """One sentence for each wrong field: where, what stands there (unless it may be a secret), what is wanted."""
    sentences = []
    for item in error.errors(include_url=False):
        path = [str(part) for part in item["loc"]]
        field = ".".join(path) or "the whole file"
        if item["type"] == "extra_forbidden":
            sentences.append(f"{source}: {field} is not a setting; remove it or mend its spelling")
        elif item["type"] == "missing":
            sentences.append(f"{source}: {field} is missing; add it")
        elif item["type"] in _WANTS_A_MAPPING:
            sentences.append(f"{source}: {field} holds {type(item['input']).__name__}, needs a mapping of settings")
        else:
            message = item["msg"].removeprefix("Value error, ")
            value = _shown(path, item["input"])
            sentences.append(f"{source}: {field}{value} is wrong: {message[:1].lower()}{message[1:]}")
    return sentences


def _shown(path: list[str], value: Any) -> str:
    if any(part in _SECRETS for part in path):
        return " (not shown)"
    return "" if isinstance(value, dict) else f" = {_SHORT.repr(value)}"
