"""A run of Weights & Biases, online or as files."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
os.environ.setdefault("WANDB_SILENT", "true")

import wandb

from rollcast.config.loggers import WandbLog
from rollcast.loggers.entries import Entry

COLUMNS = ["reward", "status", "tokens", "truncated", "prompt", "completion"]


class WandbRun:
    """W&B's own process stores entries on the disk and sends them, so `log` does not wait for the
    network.

    Attributes:
        run_id: W&B's id, under which an interrupted run continues.
    """

    def __init__(
        self,
        log: WandbLog,
        name: str,
        run_folder: Path,
        settings: dict[str, Any],
        run_id: str | None,
    ) -> None:
        self._log = log
        self._name = name
        self._folder = run_folder
        self._settings = settings
        self._is_new = run_id is None
        self.run_id = run_id or uuid.uuid4().hex[:8]
        self._run: Any = None

    def open(self) -> None:
        # W&B would measure this process and machine, not the run's.
        quiet = wandb.Settings(
            x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True,
            console="off",
            # Seconds for the first answer of the service; without it the run goes on
            init_timeout=20.0,
        )  # fmt: skip
        self._run = wandb.init(
            mode=self._log.mode,
            project=self._log.project,
            entity=self._log.entity,
            name=self._name,
            id=self.run_id,
            resume=None if self._is_new or self._log.mode == "offline" else "allow",
            dir=str(self._folder),
            config=self._settings,
            settings=quiet,
        )
        # W&B's own step only rises; a resumed run repeats the steps after its checkpoint.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            row: dict[str, Any] = {**entry.numbers, **entry.texts}
            if entry.samples:
                rows = [
                    [
                        item.reward,
                        item.status,
                        item.num_tokens,
                        item.truncated,
                        item.prompt,
                        item.completion,
                    ]
                    for item in entry.samples
                ]
                row[f"samples/{entry.samples_of}"] = wandb.Table(columns=COLUMNS, data=rows)
            if row:
                self._run.log({"step": entry.step, **row})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
