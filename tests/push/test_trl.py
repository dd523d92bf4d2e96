"""A real GRPO training of TRL that pushes to a real forecaster, and the files that it and its
reporters leave.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from rollcast.curves.columns.choices import Columns
from rollcast.push import follow
from testkit.forecaster.service_process import running
from testkit.formats.history import read_history
from testkit.tiny_model import make_tiny_model
from tests.push.served import pusher_of, served

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("trl", "accelerate")),
    reason=(
        "trl and accelerate are not installed; tests/push/test_push.py trains with transformers' "
        "own Trainer"
    ),
)
STEPS = [2, 4, 6, 8]


def has_digit(completions: list[str], **_: Any) -> list[float]:
    """The reward: whether a digit is among the first two characters."""
    return [float(any(character.isdigit() for character in text[:2])) for text in completions]


@pytest.mark.filterwarnings("ignore")  # theirs, of their own dependencies
def test_a_grpo_training_of_trl_logs_the_forecast_and_its_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tensorboard"))
    make_tiny_model(tmp_path / "model")
    rows = Dataset.from_list([{"prompt": f"{a}+{b}="} for a in range(4) for b in range(4)])
    reporters = ["tensorboard"] if importlib.util.find_spec("tensorboard") is not None else []
    arguments = GRPOConfig(output_dir=str(tmp_path / "run"), max_steps=STEPS[-1],
        per_device_train_batch_size=4, num_generations=4, num_generations_eval=4,
        per_device_eval_batch_size=4, max_completion_length=4, eval_strategy="steps",
        eval_steps=STEPS[0], logging_steps=1, save_steps=STEPS[-1], use_cpu=True, bf16=False,
        report_to=reporters, disable_tqdm=True, learning_rate=1e-3)  # fmt: skip
    with running(served(tmp_path), tmp_path) as service:
        trainer = GRPOTrainer(
            model=str(tmp_path / "model"),
            reward_funcs=[has_digit],
            args=arguments,
            train_dataset=rows,
            eval_dataset=rows.select(range(4)),
            processing_class=AutoTokenizer.from_pretrained(tmp_path / "model"),
        )
        pusher = pusher_of(service)
        follow(trainer, pusher)
        trainer.train()
        assert (pusher.failures, pusher.last_failure, pusher.budget) == (0, "", STEPS[-1])
        assert service.wait_points(len(STEPS), "theirs")["step"] == STEPS[-1]
    entries = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    assert [entry["step"] for entry in entries] == STEPS
    assert all("rollcast/stop" in entry for entry in entries)
    sources = [
        tmp_path / "run" / f"checkpoint-{STEPS[-1]}",
        *[tmp_path / name for name in reporters],
    ]
    for source in sources:
        history = read_history(str(source), Columns(), None)
        assert [item.step for item in history.evaluations] == STEPS, source
        assert [item.pass_rate for item in history.evaluations] == pytest.approx(
            [entry["eval_reward"] for entry in entries], abs=1e-6
        )
