"""Writes files with the frameworks themselves, if they are installed: input of the readers' tests.

    python -m testkit.formats.generate FOLDER [FRAMEWORK ...]

TensorBoard, W&B (offline), MLflow (its SQLite store and one metric's file), verl (file and console
logger) and transformers (the state of its Trainer, which TRL's is).
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testkit.formats.curve import BEGAN, HELD_OUT, SECONDS_PER_STEP, STEPS, TRAINING


def tensorboard(folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / "tensorboard")
    writer = EventFileWriter(str(folder / "tensorboard"))
    for step, held_out, training in zip(STEPS, HELD_OUT, TRAINING, strict=True):
        for tag, value in (("train/reward", training), ("eval/eval_gsm8k_pass1", held_out)):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(
                Event(wall_time=BEGAN + SECONDS_PER_STEP * step, step=step, summary=summary)
            )
    writer.close()
    [events] = (folder / "tensorboard").iterdir()
    events.rename(events.with_name("events.out.tfevents.1700000000.host.1.0"))


def wandb(folder: Path) -> None:
    import wandb as client

    at = folder / "scratch"
    at.mkdir(parents=True, exist_ok=True)
    os.environ["WANDB_SILENT"] = "true"
    quiet = client.Settings(
        x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True, disable_git=True,
        disable_code=True,
        console="off", host="host", username="me", program="train.py", save_code=False,
    )  # fmt: skip
    run = client.init(mode="offline", dir=str(at), project="p", settings=quiet)
    for step, held_out, training in zip(STEPS, HELD_OUT, TRAINING, strict=True):
        run.log({"train/global_step": step, "train/reward": training, "timing": {"step_s": 36.0}})
        run.log({"train/global_step": step, "eval/gsm8k/accuracy": held_out})
    run.finish()
    [wandb_file] = at.rglob("*.wandb")
    shutil.copy(wandb_file, folder / "run.wandb")
    shutil.rmtree(at)


def mlflow(folder: Path) -> None:
    from mlflow.entities import Metric
    from mlflow.store.tracking.file_store import FileStore

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / "mlruns")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    store = FileStore(str(folder / "mlruns"), ARTIFACTS)
    _log_mlflow(store, Metric)
    for folder_name in ("params", "artifacts"):
        for unneeded_folder in (folder / "mlruns").rglob(folder_name):
            shutil.rmtree(unneeded_folder)
    if importlib.util.find_spec("sqlalchemy") is not None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        database = folder / "mlflow.db"
        database.unlink(missing_ok=True)
        _log_mlflow(SqlAlchemyStore(f"sqlite:///{database}", ARTIFACTS), Metric)
        (folder / "mlflow.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))
        database.unlink()


def _log_mlflow(store: object, metric: Callable[..., object]) -> None:
    run = store.create_run("0", "me", int(BEGAN * 1000), [], "grpo").info.run_id  # type: ignore[attr-defined]
    for step, held_out, training in zip(STEPS, HELD_OUT, TRAINING, strict=True):
        at = int(1000 * (BEGAN + SECONDS_PER_STEP * step))
        for name, value in (("train/reward", training), ("eval/accuracy", held_out)):
            store.log_metric(run, metric(name, value, at, step))  # type: ignore[attr-defined]


def verl(folder: Path) -> None:
    """verl's two loggers, loaded from their files: verl itself wants a GPU stack."""
    import numpy as np

    LocalLogger = _load_module("verl", "utils/logger/aggregate_logger.py").LocalLogger
    FileLogger = _load_module("verl", "utils/tracking.py").FileLogger
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "verl.jsonl")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        loggers = FileLogger("project", "experiment"), LocalLogger()
        for step, held_out, training in zip(STEPS, HELD_OUT, TRAINING, strict=True):
            metrics = {
                "critic/score/mean": np.float64(training),
                "critic/rewards/mean": np.float64(training - 0.01),
                "perf/total_num_tokens": 20_000 + step,
                "val-core/openai/gsm8k/reward/mean@1": np.float64(held_out),
                "val-core/openai/gsm8k/reward/best@4/mean": np.float64(held_out + 0.1),
                "val-aux/num_turns/mean": 2.0,
            }
            for logger in loggers:
                logger.log(metrics, step)
    lines = printed.getvalue().splitlines(keepends=True)
    step_lines = "".join(
        f"(TaskRunner pid=77) {line}" for line in lines if line.startswith("step:")
    )
    (folder / "verl.log").write_text(f"Training Progress:   0%|          | 0/100\n{step_lines}")


def _load_module(package: str, path: str) -> Any:
    """One file of an installed package, without what its package imports."""
    package_spec = importlib.util.find_spec(package)
    assert package_spec is not None
    assert package_spec.submodule_search_locations
    spec = importlib.util.spec_from_file_location(
        Path(path).stem, Path(package_spec.submodule_search_locations[0]) / path
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def transformers(folder: Path) -> None:
    from transformers.trainer_callback import PrinterCallback, TrainerControl, TrainerState

    state = TrainerState(global_step=STEPS[-1], max_steps=STEPS[-1], num_train_epochs=1)
    for step, held_out, training in zip(STEPS, HELD_OUT, TRAINING, strict=True):
        at = {"epoch": step / 100, "step": step}
        rewards = {
            "rewards/accuracy_reward/mean": training,
            "rewards/accuracy_reward/std": 0.4,
            "reward": training,
        }
        state.log_history.append(
            {"loss": 0.01, "num_tokens": 5000.0 * step, **rewards, "reward_std": 0.2, **at}
        )
        evaluation = {
            "eval_rewards/accuracy_reward/mean": held_out,
            "eval_reward": held_out,
            "eval_reward_std": 0.3,
        }
        state.log_history.append({"eval_loss": 0.02, "eval_runtime": 3.0, **evaluation, **at})
    state.save_to_json(str(folder / "trainer_state.json"))
    (folder / "log_history.json").write_text(json.dumps(state.log_history))
    printed = io.StringIO()
    printer: Any = PrinterCallback()  # which looks at no argument of the training
    with contextlib.redirect_stdout(printed):
        for entry in state.log_history:
            # As `Trainer.log` does: the step is in the state alone, and numbers are printed with
            # four digits.
            logs = {name: value for name, value in entry.items() if name != "step"}
            printer.on_log(None, state, TrainerControl(), logs=logs)
    (folder / "trl.log").write_text(printed.getvalue())


ARTIFACTS = "file:///artifacts"
FRAMEWORKS: dict[str, Callable[[Path], None]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "verl": verl,
    "transformers": transformers,
}


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or FRAMEWORKS:
        FRAMEWORKS[name](folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
