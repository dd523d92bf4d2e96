"""A worker that asks for too much memory."""

from __future__ import annotations

from typing import Any

import torch

from testkit.generator.file_worker import FileWorker

TOO_MUCH = 1 << 50
"""Numbers of 4 bytes."""


class FailingWorker(FileWorker):
    def load_too_much(self) -> tuple[list[str], float, float]:
        torch.empty(TOO_MUCH)
        raise AssertionError("nobody has so much memory")

    def step_too_far(self) -> None:
        """From now on a step needs more memory than there is."""

        def step(*_: Any, **__: Any) -> None:
            torch.empty(TOO_MUCH)

        self.model_runner.execute_model = step
