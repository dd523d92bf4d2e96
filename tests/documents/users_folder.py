"""What a reader of the documents is said to have: curves, runs, run files, a model.

Made once, and linked to.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.recorded_run import record
from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_8B
from testkit.tiny_model import make_tiny_model
from tests.cli.known_run import write_run

RUNS = ("demo", "sums", "sums-2", "NAME", "my-run", "small", "large")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "points.csv": ("suite", "gpu_hours", "reward"),
    "runs.csv": ("run", "gpu_hours", "reward"),
    "run.csv": ("gpu_hours", "eval/gsm8k", "eval/math"),
}
"""Of tables that the pages ask for by their columns; others have compute and pass rate alone."""
SMALL_QWEN = QWEN3_8B | {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "vocab_size": 32_000,
    "num_attention_heads": 16,
}
LARGE: dict[str, Any] = {
    "run": "large",
    "model": {"path": "large"},
    "tasks": {
        "dataset": {"kind": "jsonl", "name": "rows", "path": "rows.jsonl", "verifier": "exact"}
    },
    "recipe": {"length_control": {"kind": "none"}, "max_completion_tokens": 1024},
    "trainer": {"activation_checkpointing": True, "tokens_per_micro_batch": 2048},
    "budget": {"steps": 3},
}
"""For the planning of memory, whose answer for a tiny model would be nothing."""


def make_shared(folder: Path, curves: Iterable[str]) -> Path:
    """`curves`: names of the CSV files that commands ask for."""
    make_tiny_model(folder / "models" / "arithmetic")
    (folder / "model").symlink_to(folder / "models" / "arithmetic")
    write_model(
        folder / "large", SMALL_QWEN
    )  # with shapes: of config.json alone, each plan starts Transformers for them
    (folder / "config.json").write_text(json.dumps(SMALL_QWEN))
    rows = [
        json.dumps({"prompt": f"{number}+7=", "answer": str(number + 7)}) for number in range(80)
    ]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    tiny = LARGE | {"run": "mine", "model": {"path": "models/arithmetic", "dtype": "float32"}}
    tiny |= {"recipe": {"length_control": {"kind": "none"}}}
    for name, settings in (
        ("my-run", tiny),
        ("sums", tiny),
        ("first", tiny),
        ("run", LARGE),
        ("my-cluster-run", LARGE),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    sweep: dict[str, Any] = {"sweep": "rates", "base": "my-run.yaml", "budget": {"runs": 1}}
    rates = {"recipe.optimizer.learning_rate": [1e-5, 2e-5]}
    sweep |= {"grid": rates, "target_device_hours": 1}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    for number, name in enumerate(RUNS):
        _write_run(folder / "runs" / name, name, number)
    for number, name in enumerate(sorted({*curves, "curve.csv", "a.csv", "b.csv"})):
        _write_curve(folder / name, COLUMNS.get(name, ("compute", "accuracy")), number)
    return folder


def lay_down(folder: Path, shared: Path) -> None:
    """All of it in `folder`; a command may write beside it."""
    for path in shared.iterdir():
        if path.name == "runs":
            (folder / "runs").mkdir()
            for run in path.iterdir():
                (folder / "runs" / run.name).symlink_to(run)
        elif path.suffix == ".yaml":
            (folder / path.name).write_text(path.read_text())
        else:
            (folder / path.name).symlink_to(path)


def _write_run(folder: Path, name: str, seed: int) -> None:
    folder.parent.mkdir(exist_ok=True)
    write_run(folder)  # with steps and tasks, whose rates are known
    settings = json.loads((folder / "run.json").read_text()) | {"run": name.lower()}
    if name == "large":
        settings["recipe"]["rollouts_per_prompt"] *= 4
    (folder / "run.json").write_text(json.dumps(settings))
    for point in record(20, seed=seed):
        evaluation = EvaluationRecord(
            1, point.step, point.pass_rate, point.compute / 10, standard_error=0.01
        )
        append_line(folder / "evaluations.jsonl", as_json(evaluation))
        if point.step % 50 == 0:
            checkpoint = folder / "checkpoints" / f"1.{point.step}"
            checkpoint.mkdir(parents=True, exist_ok=True)
            (checkpoint / "controller.json").write_text("{}")


def _write_curve(file: Path, columns: tuple[str, ...], seed: int) -> None:
    """4,000 units of compute; where runs or suites are told apart by a column,
    one after the other.
    """
    labels: tuple[str, ...] = {"suite": ("math", "code"), "run": ("scalerl", "other")}.get(
        columns[0], ("",)
    )
    with file.open("w") as stream:
        table = csv.writer(stream)
        table.writerow(columns)
        for number, label in enumerate(labels):
            for point in record(16, seed=seed + number)[1:]:
                rates = iter((point.pass_rate, 0.9 * point.pass_rate))
                known = {
                    "suite": label,
                    "run": label,
                    "gpu_hours": 4000 * point.compute,
                    "compute": 4000 * point.compute,
                }
                table.writerow(
                    known[column] if column in known else next(rates) for column in columns
                )
