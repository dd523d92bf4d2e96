"""The policy as an adapter (`model.lora`): each version replaces vLLM's only one, under the pause.

    start    the base is read from model.path, with an adapter of zeros, which changes nothing
    apply    the staged tensors become the adapter: the same number, the same place, no file

Every request asks for this adapter. Its number and name never change, so the salt
keeps versions apart in vLLM's prefix cache, as for whole weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # reads the environment when it is imported, and the generator imports this module before it
    # sets that
    import torch

ADAPTER_ID = 1
ADAPTER_NAME = "policy"


def adapter_request() -> Any:
    """The argument of a request to vLLM that asks for the policy's adapter."""
    from vllm.lora.request import LoRARequest

    # The path is never read: the adapter is there before the first request.
    return LoRARequest(ADAPTER_NAME, ADAPTER_ID, lora_path="none")


class PolicyAdapter:
    """The adapter in one worker. Every method is called between two steps."""

    def __init__(self, runner: Any, device: torch.device, rank: int, alpha: int) -> None:
        """`runner`: vLLM's model runner, whose model has its adapter layers already."""
        from vllm.lora.peft_helper import PEFTHelper

        self._workers = runner.lora_manager
        self._manager = self._workers._adapter_manager
        self._model = runner.model
        self._device = device
        self._settings = PEFTHelper(r=rank, lora_alpha=alpha, target_modules=[])
        self._workers.add_dummy_lora(adapter_request(), rank)
        self._manager.activate_adapter(ADAPTER_ID)

    @property
    def num_bytes(self) -> int:
        """Bytes of this worker's part of the adapter, at the greatest rank
        that vLLM made room for.
        """
        return sum(
            stack.nbytes
            for layer in self._manager.modules.values()
            for stack in (*layer.lora_a_stacked, *layer.lora_b_stacked)
        )

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the adapter; `tensors`: under the names of PEFT's files.

        Raises RuntimeError if some are missing.
        """
        from vllm.lora.lora_model import LoRAModel

        mapper = getattr(self._model, "hf_to_vllm_mapper", None)
        received = LoRAModel.from_lora_tensors(
            ADAPTER_ID,
            # Copies: vLLM multiplies them in place, and the staged memory is read again for other
            # workers.
            {name: tensor.to(self._device, copy=True) for name, tensor in tensors},
            self._settings,
            device=str(self._device),
            weights_mapper=None if mapper is None else mapper.get_rename_mapper(),
        )
        self._manager.remove_adapter(ADAPTER_ID)
        self._manager.add_adapter(received)
        # vLLM drops weights of layers that it lacks, and a layer without weights would compute with
        # the base alone.
        if differing := received.loras.keys() ^ self._manager.modules.keys():
            raise RuntimeError(
                "the trainer's adapter and this model's layers differ: "
                f"{', '.join(sorted(differing)[:5])}"
            )
        self._manager.activate_adapter(ADAPTER_ID)
