"""The generator's worker with two more methods: note which experts the routers choose, and tell it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from rollcast.generator.worker import GeneratorWorker


class RoutingWorker(GeneratorWorker):
    def tap_routers(self) -> None:
        """From now on, keep the experts of every token of every request."""
        from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

        self._step: dict[int, torch.Tensor] = {}
        self._routing: dict[str, list[torch.Tensor]] = {}
        for module in self.model_runner.model.modules():
            if isinstance(module, MoERunner):
                module.router.set_capture_fn(partial(self._step.__setitem__, module.layer_id))
        run = self.model_runner.execute_model

        def tapped(scheduled: Any, *arguments: Any, **keywords: Any) -> Any:
            result = run(scheduled, *arguments, **keywords)
            if scheduled.total_num_scheduled_tokens:
                self._keep(scheduled.num_scheduled_tokens)
            return result

        self.model_runner.execute_model = tapped

    def _keep(self, num_scheduled: dict[str, int]) -> None:
        chosen = torch.stack([self._step[layer] for layer in sorted(self._step)], dim=1)
        requests = self.model_runner.input_batch.req_ids
        for request, rows in zip(requests, chosen.split([num_scheduled[name] for name in requests]), strict=True):
            self._routing.setdefault(request, []).append(rows.clone())

    def take_routing(self, request: str) -> list[list[list[int]]]:
        """[positions, routing layers, experts per token] of a request that was computed from its first token on."""
        chosen: list[list[list[int]]] = torch.cat(self._routing.pop(request)).tolist()
        return chosen
