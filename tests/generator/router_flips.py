"""Where the learner's routers chose other experts than the generator's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rollcast.trainer.learner.batch import TrainingSequence

Routing = NDArray[np.int64]
"""[..., positions, routing layers, experts per token]; every row is sorted: a set."""


class TrainerRouting:
    """What the routers of a Hugging Face model chose in its last forward pass."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._chosen: dict[str, torch.Tensor] = {}
        for name, module in model.named_modules():
            if type(module).__name__.lower().endswith("topkrouter"):
                module.register_forward_hook(
                    lambda *call, name=name: self._chosen.update({name: call[-1][2]})
                )

    def chosen(self, num_sequences: int) -> Routing:
        """[sequences, padded positions, routing layers, experts per token], layers in the model's
        order.
        """
        stacked = torch.stack(list(self._chosen.values()), dim=1).numpy()
        return np.sort(stacked.reshape(num_sequences, -1, *stacked.shape[1:]), axis=-1)


def router_flips(
    sequences: Sequence[TrainingSequence], trainer: TrainerRouting
) -> NDArray[np.int64]:
    """[sequences, padded positions]: layers in which the two sides sent a token to different sets
    of experts.
    """
    ours = trainer.chosen(len(sequences))
    flips = np.zeros(ours.shape[:2], dtype=np.int64)
    for row, sequence in enumerate(sequences):
        inputs = sequence.num_tokens - 1  # the last token is nobody's input
        assert sequence.routed_experts is not None
        theirs = np.sort(sequence.routed_experts, axis=-1)
        assert theirs.shape == (inputs, *ours.shape[2:])
        differ = (ours[row, :inputs] != theirs).any(axis=-1)
        flips[row, :inputs] = differ.sum(axis=-1)
    return flips


def seen_flips(
    sequences: Sequence[TrainingSequence], flips: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Of every completion token: was any token that it attends to, routed differently?"""
    seen = np.cumsum(flips, axis=1) > 0
    return np.concatenate(
        [
            seen[row, len(sequence.prompt_token_ids) - 1 : sequence.num_tokens - 1]
            for row, sequence in enumerate(sequences)
        ]
    )
