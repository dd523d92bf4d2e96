"""The generator's worker with one more method: the logits that its model makes of given hidden
states.
"""

from __future__ import annotations

from testkit.generator.file_worker import FileWorker


class HeadProbe(FileWorker):
    def probe_head(self, hidden: list[list[float]]) -> tuple[str, list[list[float]]]:
        """Return the logits' dtype and their values; `hidden` [T, H] is rounded to the model's
        dtype.
        """
        import torch

        model = self.model_runner.model
        dtype = next(model.parameters()).dtype
        logits = model.compute_logits(torch.tensor(hidden).to(dtype))
        return str(logits.dtype).removeprefix("torch."), logits.float().tolist()
