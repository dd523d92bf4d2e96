"""The client inside a trainer: the forecast is logged, and where that is asked for the advice stops
the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.push import follow
from testkit.forecaster.service_process import Service, running
from tests.push.logging_trainer import LoggingTrainer
from tests.push.served import pusher_of, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all: each test pushes runs of its own."""
    folder = tmp_path_factory.mktemp("shared")
    with running(served(folder), folder) as started:
        yield started


@pytest.mark.parametrize("stop_on_advice", [True, False])
def test_a_trainer_logs_the_forecast_and_stops_on_advice_where_that_is_asked(
    service: Service, *, stop_on_advice: bool
) -> None:
    """A run that has long levelled off: the advice is to stop."""
    levelled = [0.2 + 0.65 / (1 + (4.0 / n) ** 3) + 0.002 * ((-1) ** n) for n in range(1, 41)]
    pusher = pusher_of(service, f"advised {stop_on_advice}", worth=0.05)
    trainer = LoggingTrainer(levelled)
    follow(trainer, pusher, stop_on_advice=stop_on_advice)
    trainer.train()
    state, seen = trainer.state, trainer.seen
    assert pusher.budget == 400.0
    assert ["rollcast/ceiling" in logs for logs in seen[:6]] == [False] * 4 + [True] * 2, (
        "from five evaluations on"
    )
    assert all("rollcast/stop" in logs for logs in seen), "reporters see the advice"
    assert "rollcast/end" in state.log_history[-1]
    assert (state.global_step < 400) == stop_on_advice
    if stop_on_advice:
        assert pusher.says_stop
        assert [logs["rollcast/stop"] for logs in seen[-3:]] == [1.0, 1.0, 1.0]


def test_a_real_trainer_of_transformers_logs_and_stops(service: Service, tmp_path: Path) -> None:
    """Its own loop, evaluation and reporting; a metric that levels off stands in for the reward."""
    pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": (self.layer(x) - labels).square().mean(), "logits": self.layer(x)}

    rows = [{"x": torch.tensor([1.0]), "labels": torch.tensor([2.0])}] * 8
    asked: list[int] = []

    def measure(_: Any) -> dict[str, float]:
        asked.append(1)
        return {"reward": 0.2 + 0.65 / (1 + (4.0 / len(asked)) ** 3) + 0.002 * (-1) ** len(asked)}

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=80, eval_strategy="steps", eval_steps=1,
        logging_steps=50,
        save_strategy="no", use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        Model(), arguments, train_dataset=rows, eval_dataset=rows, compute_metrics=measure
    )
    pusher = pusher_of(service, "real")
    follow(trainer, pusher, stop_on_advice=True)
    trainer.train()
    told = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    assert all("rollcast/stop" in entry for entry in told)
    assert "rollcast/ceiling" in told[-1]
    assert trainer.state.global_step < 80
    assert pusher.says_stop
