"""What is said to be kept for the backward pass is what autograd keeps, storage by storage."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from rollcast.memory.activations import Load, kept_around_layers, kept_by_layer
from rollcast.trainer.learner.recurrence import shorten_chunks
from testkit.model_shapes import make_shape
from tests.memory.architectures import SETTINGS, make_config

SEQUENCES = 2
LENGTH = 100
"""No multiple of a recurrent layer's chunk: what needs no padding keeps 6 % more of a small model
in float32."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Kept:
    """Bytes of the storages that autograd saves, each once; those of weights and buffers are not
    counted.
    """

    def __init__(self, model: nn.Module) -> None:
        self.known = {
            tensor.untyped_storage().data_ptr()
            for tensor in (*model.parameters(), *model.buffers())
        }
        self.held: list[Tensor] = []  # else an address could be given out twice
        self.total = 0

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.known:
            self.known.add(storage.data_ptr())
            self.held.append(tensor)
            self.total += storage.nbytes()
        return tensor


def kept(config: Any, dtype: torch.dtype) -> int:
    """By the body of a model, from its embeddings to its last norm."""
    torch.manual_seed(0)
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) else None
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=attention
    ).model.train()
    shorten_chunks(model)
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    counter = Kept(model)
    with saved_tensors_hooks(counter.pack, lambda tensor: tensor):
        output = model(input_ids=ids, use_cache=False).last_hidden_state
    assert output.requires_grad
    return counter.total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SETTINGS)
def test_every_family_keeps_what_is_counted(name: str, dtype: str) -> None:
    config = make_config(name)
    shape = make_shape(json.loads(config.to_json_string()))
    load = Load(SEQUENCES * LENGTH, LENGTH, DTYPES[dtype].itemsize)
    counted = sum(kept_by_layer(shape, layer, load) for layer in shape.layers) + kept_around_layers(
        shape, load
    )
    counted -= load.tokens * shape.hidden * load.item  # what the head reads, which is not run here
    assert counted == pytest.approx(kept(config, DTYPES[dtype]), rel=0.05)
