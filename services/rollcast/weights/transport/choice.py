"""Which transport carries the weights of a run, and why."""

from dataclasses import dataclass
from typing import Literal

import torch

from rollcast.config.connections import Weights
from rollcast.weights.transport.process_group import backend_for, why_not_nccl


@dataclass(frozen=True)
class TransportChoice:
    transport: Literal["nccl", "gloo", "store"]
    reason: str
    """The log's sentence."""


def choose_transport(
    device: torch.device, weights: Weights, *, shares_gpu: bool
) -> TransportChoice:
    """The transport of a trainer rank on `device`.

    `shares_gpu`: a generator uses the same GPU. Raises UserError: NCCL is wanted and cannot work.
    """
    if weights.uses_store:
        is_wanted = weights.transport == "store"
        setting = "weights.transport" if is_wanted else "weights.store.location"
        return TransportChoice("store", f"{setting} is set: generators pull versions")
    backend = backend_for(device, weights.transport, shares_gpu=shares_gpu)
    if weights.transport != "auto":
        return TransportChoice(backend, "weights.transport is set")
    no_store = "weights.store.location is not set"
    if backend == "nccl":
        return TransportChoice(backend, f"the trainer has a GPU of its own, and {no_store}")
    obstacle = why_not_nccl(device, shares_gpu=shares_gpu)
    return TransportChoice(backend, f"{obstacle}, and {no_store}")
