"""A program that counts the copies with which a version of a mixture of experts gets into vLLM's
model.

    python -m tests.generator.expert_copies FOLDER DEVICE

FOLDER: a model's config, or the model. DEVICE: cpu, or meta for a model that no memory would hold.
Prints one line of JSON: for our loading and for vLLM's own the number of copies, and on a CPU
whether the parameters came out the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from rollcast.generator.vllm.expert_stacks import load_stacks_whole
from rollcast.trainer.learner.architecture import published_names

Tensors = Iterable[tuple[str, torch.Tensor]]


class CountedCopies(TorchFunctionMode):
    """Counts calls of `Tensor.copy_`."""

    count = 0

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        self.count += function is torch.Tensor.copy_
        return function(*arguments, **(keywords or {}))


def vllm_model(folder: Path, device: str) -> Any:
    """The model as a worker of one GPU holds it, with random weights,
    or none on the meta device.
    """
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader.utils import initialize_model

    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), dtype="float32", max_model_len=128, skip_tokenizer_init=True
        ),
        cache_config=CacheConfig(block_size=32),
        device_config=DeviceConfig("cpu"),
    )
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{os.environ['EXPERT_COPIES_STORE']}", 0, "gloo")
        initialize_model_parallel(backend="gloo")
        with torch.device(device):
            return initialize_model(vllm_config=config)


def version(folder: Path, device: str) -> list[tuple[str, torch.Tensor]]:
    """Random weights under the names that travel."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    with torch.device(device):
        causal_lm = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=torch.float32
        )
    names = published_names(causal_lm)
    return [(str(names[name]), weight.detach()) for name, weight in causal_lm.named_parameters()]


def count(tensors: Tensors, model: Any) -> tuple[int, list[torch.Tensor]]:
    """The copies of one load, and the parameters after it."""
    for parameter in model.parameters():
        parameter.data.zero_()
    with CountedCopies() as copies, torch.no_grad():
        loaded = model.load_weights(tensors)
    missing = {name for name, _ in model.named_parameters()} - loaded
    assert not missing, missing
    return copies.count, [parameter.detach().clone() for parameter in model.parameters()]


def main(folder: Path, device: str) -> None:
    model = vllm_model(folder, device)
    tensors = version(folder, device)
    num_theirs, theirs = count(tensors, model)
    load_stacks_whole(model)
    num_ours, own = count(tensors, model)
    same = device == "meta" or all(
        torch.equal(one, other) for one, other in zip(own, theirs, strict=True)
    )
    print(json.dumps({"ours": num_ours, "vllm": num_theirs, "tensors": len(tensors), "same": same}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
