"""The generator's worker with one more method: load a version from a file, in place of wire 2."""

from __future__ import annotations

import time

from rollcast.generator.vllm.worker import GeneratorWorker


class FileWorker(GeneratorWorker):
    def load_file(self, path: str) -> tuple[list[str], float, float]:
        """Load a version as `apply` does, with the same results."""
        from safetensors.torch import load_file

        started = time.monotonic()
        self._load_complete(load_file(path).items())
        return (
            self.step_observer.decoding(),
            self.step_observer.last_step_at,
            time.monotonic() - started,
        )
