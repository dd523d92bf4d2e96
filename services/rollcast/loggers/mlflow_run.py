"""A run on an MLflow tracking server."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Before the import: our own back-off replaces its retries, and its telemetry is off.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from rollcast.config.loggers import MlflowLog
from rollcast.loggers.entries import Entry, RefusedError, as_table

PASSING_STATUSES = frozenset({401, 403, 404, 408, 429})
"""Refusals that may pass: credentials are fixed, a server is set up."""


@dataclass
class MlflowRun:
    log: MlflowLog
    name: str
    settings: dict[str, Any]
    run_id: str | None
    """MLflow's id, under which an interrupted run continues."""

    def __post_init__(self) -> None:
        self._client: Any = MlflowClient(self.log.url)

    def open(self) -> None:
        if self.run_id is not None:
            self._client.update_run(self.run_id, status="RUNNING")
            return
        name = self.log.experiment
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = (
            experiment.experiment_id if experiment else self._client.create_experiment(name)
        )
        self.run_id = str(self._client.create_run(experiment_id, run_name=self.name).info.run_id)
        # MLflow's bounds: of a text, and of the parameters in a request
        params = [Param(name, text[:500]) for name, text in flat(self.settings)]
        for start in range(0, len(params), 100):
            self._client.log_batch(self.run_id, params=params[start : start + 100])

    def write(self, entries: Sequence[Entry]) -> None:
        try:
            self._write(entries)
        except MlflowException as error:
            status = error.get_http_status_code()
            if 400 <= status < 500 and status not in PASSING_STATUSES:
                raise RefusedError(str(error)) from error
            raise

    def _write(self, entries: Sequence[Entry]) -> None:
        metrics = [
            Metric(_key(name), value, int(1000 * entry.at), entry.step)
            for entry in entries
            for name, value in entry.numbers.items()
        ]
        texts = {name: text for entry in entries for name, text in entry.texts.items()}
        # MLflow's bound
        tags = [RunTag(_key(name), text[:5_000]) for name, text in texts.items()]
        # The same for metrics in a request
        for start in range(0, max(len(metrics), 1), 1_000):
            batch = metrics[start : start + 1_000]
            self._client.log_batch(self.run_id, metrics=batch, tags=tags)
        for entry in entries:
            if entry.samples:
                folder = _key(entry.samples_of).replace("/", "_")
                file = f"samples/{folder}/step-{entry.step:06d}.md"
                self._client.log_text(self.run_id, "\n".join(as_table(entry.samples)), file)

    def close(self) -> None:
        if self.run_id is not None:
            self._client.set_terminated(self.run_id)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names of the settings and their values as text."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _key(name: str) -> str:
    """The name with only the characters that MLflow allows."""
    return re.sub(r"[^\w. /-]", "_", name)
