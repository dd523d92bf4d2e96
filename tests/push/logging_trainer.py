"""What of transformers' Trainer a callback sees."""

from __future__ import annotations

from typing import Any

import pytest


class LoggingTrainer:
    """transformers' own handler, state and control over a run that logs an evaluation every ten
    steps.
    """

    def __init__(self, pass_rates: list[float]) -> None:
        callback = pytest.importorskip("transformers.trainer_callback")
        seen: list[dict[str, Any]] = []

        class Reports(callback.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_log(
                self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
            ) -> None:
                seen.append(dict(logs))

        self.seen = seen
        """What reporters were given."""
        self.callback_handler = callback.CallbackHandler(
            [callback.DefaultFlowCallback(), Reports()], None, None, None, None
        )
        self.control = callback.TrainerControl()
        self.state = callback.TrainerState(
            max_steps=10 * len(pass_rates), logging_steps=1, eval_steps=10, save_steps=500
        )
        self._pass_rates = pass_rates

    def train(self) -> None:
        handler, state = self.callback_handler, self.state
        self.control = handler.on_train_begin(None, state, self.control)
        for number, pass_rate in enumerate(self._pass_rates, start=1):
            state.global_step = 10 * number
            logs = {"eval_reward": pass_rate, "step": state.global_step}
            state.log_history.append(dict(logs))
            self.control = handler.on_log(None, state, self.control, logs)
            if self.control.should_training_stop:
                break
