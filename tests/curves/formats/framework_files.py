"""Files as the frameworks themselves wrote them (`testkit/formats/generate.py`), and the curve that
went into them.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rollcast.curves.columns.choices import Columns
from testkit.formats.curve import HELD_OUT, STEPS
from testkit.formats.history import read_history

FILES = Path(__file__).parent / "files"
WRITTEN = {
    "tensorboard": ("TensorBoard event file", "step", "eval/eval_gsm8k_pass1"),
    "run.wandb": ("offline run of W&B", "train/global_step", "eval/gsm8k/accuracy"),
    "mlruns": ("MLflow folder", "step", "eval/accuracy"),
    "mlflow.db": ("MLflow store", "step", "eval/accuracy"),
    "verl.jsonl": ("file log of verl", "step", "val-core/openai/gsm8k/reward/mean@1"),
    "verl.log": ("console log of verl", "step", "val-core/openai/gsm8k/reward/mean@1"),
    "trainer_state.json": ("trainer_state.json of TRL or transformers", "step", "eval_reward"),
    "log_history.json": ("log history of TRL or transformers", "step", "eval_reward"),
}
"""File -> what it is recognised as, its compute, its held-out pass rate."""


def at(folder: Path, name: str, tmp_path: Path) -> Path:
    """The file; a database is unpacked."""
    packed = folder / f"{name}.gz"
    if not packed.exists():
        return folder / name
    unpacked = tmp_path / name
    unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
    return unpacked


def assert_tells_the_curve(path: Path, name: str) -> None:
    history = read_history(str(path), Columns(), None)
    read_as, compute, pass_rate = WRITTEN[name]
    origin = history.origin
    assert (origin.format, origin.compute, origin.pass_rate, origin.unit) == (
        read_as,
        compute,
        pass_rate,
        "steps",
    )
    assert [item.compute for item in history.evaluations] == list(STEPS)
    assert [item.pass_rate for item in history.evaluations] == pytest.approx(
        list(HELD_OUT), abs=1e-6
    )
