"""The generator's worker with more methods: load a version from a file, in place of wire 2; ask for
too much memory.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from rollcast.generator.vllm.worker import GeneratorWorker

TOO_MUCH = 1 << 50
"""Numbers of 4 bytes."""


class FileWorker(GeneratorWorker):
    def load_file(self, path: str) -> tuple[list[str], float, float]:
        from safetensors.torch import load_file

        started = time.monotonic()
        self._load_complete(load_file(path).items())
        return (
            self.step_observer.decoding(),
            self.step_observer.last_step_at,
            time.monotonic() - started,
        )

    def load_too_much(self) -> tuple[list[str], float, float]:
        torch.empty(TOO_MUCH)
        raise AssertionError("nobody has so much memory")

    def step_too_far(self) -> None:
        """From now on a step needs more memory than there is."""

        def step(*_: Any, **__: Any) -> None:
            torch.empty(TOO_MUCH)

        self.model_runner.execute_model = step
