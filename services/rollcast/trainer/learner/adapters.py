"""LoRA: PEFT's adapters in a model on the meta device, before it is sharded.

    skeleton -> add_adapters -> shard -> read the frozen weights (without_adapters) -> make_adapters

The model's own weights are frozen and in the model's dtype. Adapters are float32, as masters are;
the forward pass gathers them in the model's dtype, in which they are published.
"""

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from rollcast.config.lora import LINEAR_LAYERS, Lora
from rollcast.trainer.learner.layers import decoder_layers
from rollcast.trainer.learner.unsupported import Unsupported

ADAPTER = "default"
"""PEFT's name of the only adapter, which is a part of its weights' names in the module."""
FILE_PREFIX = "base_model.model."
"""Begins every name in a file of PEFT's, and so on the wire."""
ABSORBED_LAYERS = ("kv_b_proj",)
"""vLLM multiplies other matrices by these weights when it has read them, and decodes with the
products: it would see no adapter of theirs."""
EXPERT_LAYERS = (
    "experts",
    "gate_proj",
    "up_proj",
    "gate_up_proj",
    "down_proj",
    "w1",
    "w2",
    "w3",
    "gate",
    "router",
)
"""Names of layers of experts and of their routers. PEFT takes such a name of a layer outside of
them for that of the experts too, and fuses two of them into an adapter of twice the rank."""


def add_adapters(causal_lm: Any, lora: Lora) -> None:
    """Freeze the model and put adapters on its targets.

    Raises Unsupported if a target cannot have one.
    """
    from peft import (
        inject_adapter_in_model,
    )  # takes a second, which a run without adapters does not have to wait

    target_names = _targets(causal_lm, lora)
    causal_lm.requires_grad_(False)
    inject_adapter_in_model(
        adapter_config(lora, target_names), causal_lm, ADAPTER, low_cpu_mem_usage=True
    )
    _check_adapted(causal_lm, lora.rank)
    for layer in adapted_layers(causal_lm).values():
        for factor in (layer.lora_A, layer.lora_B):
            weight = factor[ADAPTER].weight
            weight.data = (
                weight.data.float()
            )  # of no size yet; PEFT gives it the dtype of the frozen weight


def adapter_config(lora: Lora, targets: list[str], **base: str | None) -> Any:
    """PEFT's settings. `base`: the model that the adapter belongs to."""
    from peft import LoraConfig

    return LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        # Dropout would add noise to the ratio to the generators' log-probs.
        lora_dropout=0.0,
        target_modules=targets,
        **base,
    )


def adapted_layers(causal_lm: nn.Module) -> dict[str, Any]:
    """Every layer with an adapter (PEFT's `lora.Linear`), by its name in the model."""
    return {name: module for name, module in causal_lm.named_modules() if hasattr(module, "lora_A")}


def published_adapters(causal_lm: nn.Module) -> dict[str, str | None]:
    """The name of each adapter weight in a file of PEFT's, which vLLM reads, by its name in the
    module.
    """
    return {
        f"{name}.{factor_name}.{ADAPTER}.weight": f"{FILE_PREFIX}{name}.{factor_name}.weight"
        for name in adapted_layers(causal_lm)
        for factor_name in ("lora_A", "lora_B")
    }


@contextmanager
def without_adapters(causal_lm: nn.Module) -> Iterator[None]:
    """The model as its files know it: each adapted layer is replaced by the layer inside."""
    layers = adapted_layers(causal_lm)
    for name, layer in layers.items():
        causal_lm.set_submodule(name, layer.base_layer)
    try:
        yield
    finally:
        for name, layer in layers.items():
            causal_lm.set_submodule(name, layer)


@contextmanager
def adapters_off(policy: nn.Module) -> Iterator[None]:
    """The frozen model alone."""
    # PEFT's own switch also freezes the adapters, while FSDP may have them sharded or gathered.
    layers = list(adapted_layers(policy).values())
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def make_adapters(policy: nn.Module, seed: int, device: torch.device) -> None:
    """Give sharded adapters their first values, as PEFT does: A is random, B is 0, so that the
    policy is the base.

    Each rank draws a whole A and keeps its rows, so that the values do not depend on the number of
    ranks.
    """
    for name, layer in adapted_layers(policy).items():
        drawn = torch.empty(layer.lora_A[ADAPTER].weight.shape)
        numbers = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
        # PEFT's own initialisation of A.
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=numbers)
        _set_weight(layer.lora_A[ADAPTER], drawn, device)
        _set_weight(layer.lora_B[ADAPTER], torch.zeros(layer.lora_B[ADAPTER].weight.shape), device)


def _set_weight(module: nn.Module, full_weight: Tensor, device: torch.device) -> None:
    sharded = module.weight
    assert isinstance(sharded, DTensor)
    # Without a source rank, because every rank has drawn the whole weight.
    distributed_weight = distribute_tensor(
        full_weight.to(device), sharded.device_mesh, sharded.placements, src_data_rank=None
    )
    module.weight = nn.Parameter(distributed_weight)


def _targets(causal_lm: Any, lora: Lora) -> list[str]:
    """The names among lora.layers that linear layers of the decoder have."""
    layers = decoder_layers(causal_lm)
    linear = {
        _last_name(name)
        for layer in layers
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    }
    experts = {_last_name(name) for layer in layers for name in _experts(layer)}
    without = set(ABSORBED_LAYERS)
    if experts:
        without |= experts | set(EXPERT_LAYERS)
    if lora.targets == "all-linear":
        _check_all_linear(layers, linear, without, has_experts=bool(experts))
    else:
        for name in lora.targets:
            _check_target(name, layers, linear, without)
    return sorted(linear & set(lora.layers))


def _check_all_linear(
    layers: list[nn.Module], linear: set[str], without: set[str], *, has_experts: bool
) -> None:
    attention = _attention(layers, without)
    if has_experts:
        raise _no_adapters_for_experts(" = all-linear", attention)
    if unknown_names := linear - set(LINEAR_LAYERS):
        other_layers = [name for name in LINEAR_LAYERS if name in linear and name not in attention]
        usual = [*attention, *other_layers]
        raise Unsupported(
            f"has linear layers of unknown names, {', '.join(sorted(unknown_names))} "
            "(model.lora.targets = all-linear)",
            f"list the targets in model.lora.targets, such as [{', '.join(usual)}]",
        )


def _check_target(name: str, layers: list[nn.Module], linear: set[str], without: set[str]) -> None:
    choice = f"choose among {', '.join(sorted(linear - without))}"
    if name in linear and name in ABSORBED_LAYERS:
        raise Unsupported(
            f"has latent attention, which vLLM decodes with the {name} of the base alone "
            f"(model.lora.targets: {name})",
            choice,
        )
    if name in without - set(ABSORBED_LAYERS):
        raise _no_adapters_for_experts(f": {name}", _attention(layers, without))
    if name not in linear:
        raise Unsupported(
            f"has no linear layer {name!r} in its decoder layers (model.lora.targets)", choice
        )


def _no_adapters_for_experts(targets: str, attention: list[str]) -> Unsupported:
    return Unsupported(
        f"has experts, which get no adapters (model.lora.targets{targets})",
        f"give model.lora.targets its attention, [{', '.join(attention)}]",
    )


def _attention(layers: list[nn.Module], without: set[str]) -> list[str]:
    """Names of the attention's linear layers, in its order: those in the modules
    of its output's.
    """
    linear_names: dict[str, None] = {}
    for layer in layers:
        for module in layer.modules():
            linear = [
                name for name, child in module.named_children() if isinstance(child, nn.Linear)
            ]
            if "o_proj" in linear:
                linear_names |= dict.fromkeys(linear)
    return [name for name in linear_names if name not in without]


def _experts(layer: nn.Module) -> Iterator[str]:
    """Names of the stacks of three dimensions, as which Transformers keeps experts, and of layers
    of single experts.
    """
    convolutions = {name for name, module in layer.named_modules() if isinstance(module, nn.Conv1d)}
    for name, weight in layer.named_parameters():
        is_stack = weight.dim() == 3 and name.removesuffix(".weight") not in convolutions
        if is_stack or "experts" in name.split("."):
            yield name.removesuffix(".weight")


def _check_adapted(causal_lm: nn.Module, rank: int) -> None:
    """PEFT rewrites the settings for some kinds of model, by which experts would get adapters of
    another rank.
    """
    for name, layer in adapted_layers(causal_lm).items():
        base = getattr(layer, "base_layer", None)
        assert isinstance(base, nn.Linear), f"{name} is no linear layer"
        assert layer.lora_A[ADAPTER].weight.shape == (rank, base.in_features), name


def _last_name(name: str) -> str:
    return name.rpartition(".")[2]
