"""Reads a model's folder into a sharded policy: each rank reads only its own slices of the weights.

    config -> skeleton (meta device) -> shard (nothing in memory yet) -> read the slices, cast -> other buffers

Transformers' loader supports sharded parameters: it asks each stored tensor for this rank's slice alone, and stacks
only the experts that this rank holds. Here it reads one parameter after the other.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.hub import get_checkpoint_shard_files
from transformers.utils.logging import disable_progress_bar

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.model import Model
from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.config.recipe import KlPenalty, Recipe
from rollcast.config.services import Trainer
from rollcast.trainer.learner.architecture import Unsupported, skeleton
from rollcast.trainer.learner.layers import COMPILER
from rollcast.trainer.learner.learner import Reference
from rollcast.trainer.learner.model import Policy, shard_policy
from rollcast.trainer.learner.ranks import Ranks

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    RuntimeError,
    ImportError,
    AttributeError,
    SafetensorError,
    StrictDataclassError,
)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a safetensors file. Each slice is read on request, and the file is mapped only meanwhile.

    Transformers would keep the files mapped until all is read: pages that count as this process's memory.
    """

    file: str
    name: str
    shape: list[int]
    dtype: str

    def get_shape(self) -> list[int]:
        return self.shape

    def get_dtype(self) -> str:
        return self.dtype

    def __getitem__(self, slices: Any) -> Tensor:
        with safe_open(self.file, framework="pt") as file:
            return cast(Tensor, file.get_slice(self.name)[slices].clone())


def read_policy(
    settings: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks, *, dtype: torch.dtype, frozen: bool = False
) -> Policy:
    """Read and shard a model: parameters in `dtype`, buffers as the model makes them. Collective.

    `frozen`: for forward passes alone. Raises UserError if it cannot be read or cannot be trained here.
    """
    disable_progress_bar()
    try:
        causal_lm = skeleton(settings)
        for parameter in causal_lm.parameters():  # of no size yet
            parameter.data = parameter.data.to(dtype)
        causal_lm.requires_grad_(not frozen)
        policy = shard_policy(
            causal_lm,
            mesh=ranks.mesh,
            dtype=getattr(torch, settings.dtype),
            lm_head=recipe.lm_head,
            temperature=recipe.temperature,
            logits_chunk_tokens=trainer.logits_chunk_tokens,
            activation_checkpointing=False if frozen else trainer.activation_checkpointing,
            router_replay=recipe.router_replay and not frozen,
            compiler=COMPILER if trainer.compile else None,
            packing=trainer.packing,
        )
        _check_experts(policy, ranks)
        _read_weights(policy, _stored_tensors(settings.path), ranks.device)
    except Unsupported as error:
        raise UserError(f"model.path = {settings.path!r} {error}") from error
    except UserError:
        raise
    except UNREADABLE as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise refused_by_the_world(
            error,
            f"model.path = {settings.path!r} cannot be read as a causal language model ({reason}); "
            "give a folder with config.json and safetensors, or a name on the hub",
        ) from error
    return policy


def _stored_tensors(path: str) -> dict[str, StoredTensor]:
    """Every tensor of the model's safetensors files, which are fetched from the hub if `path` is a name there."""
    whole = cached_file(path, SAFE_WEIGHTS_NAME, _raise_exceptions_for_missing_entries=False)
    index = cached_file(path, SAFE_WEIGHTS_INDEX_NAME, _raise_exceptions_for_missing_entries=False)
    if whole is None and index is None:
        raise FileNotFoundError(f"neither {SAFE_WEIGHTS_NAME} nor {SAFE_WEIGHTS_INDEX_NAME} is there")
    found = {}
    for name in [whole] if whole is not None else get_checkpoint_shard_files(path, index)[0]:
        with safe_open(name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  (no mapping)
                tensor = file.get_slice(key)
                found[key] = StoredTensor(name, key, tensor.get_shape(), tensor.get_dtype())
    return found


def _check_experts(policy: Policy, ranks: Ranks) -> None:
    """Transformers fails on a rank without experts: it cannot stack an empty list."""
    for name, weight in policy.named_weights():
        if weight.dim() == 3 and weight.shape[0] < ranks.num_shards:
            raise UserError(
                f"{ranks.num_shards} trainer ranks are more than the {weight.shape[0]} experts of a layer ({name}); "
                f"give the trainer at most {weight.shape[0]} ranks"
            )


def _read_weights(policy: Policy, stored: Mapping[str, StoredTensor], device: torch.device) -> None:
    """Fill parameters and buffers. Raises Unsupported, UserError and what Transformers raises."""
    causal_lm = policy.causal_lm
    dtype = next(policy.parameters()).dtype
    is_tied = policy.is_tied
    loading = LoadStateDictConfig(
        pretrained_model_name_or_path=causal_lm.config.name_or_path,
        device_map={"": device},
        dtype=dtype,
        weight_mapping=get_model_conversion_mapping(causal_lm),
    )
    # Without threads, which run ahead of the stacking of experts by any number of layers: with them a rank held up to
    # 0.8 GB more than its shard of 1.2 GB, and was no quicker (`python -m lab.start`).
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    report, _ = convert_and_load_state_dict_in_model(causal_lm, dict(stored), loading)
    report = causal_lm._finalize_model_loading(causal_lm, loading, report)
    missing = sorted(report.missing_keys)
    if missing:
        raise UserError(
            f"model.path = {causal_lm.config.name_or_path!r} lacks {len(missing)} weights, first {missing[0]!r}; "
            "give a complete model"
        )
    if policy.is_tied is not is_tied:
        raise Unsupported(
            "stores two different matrices that its config calls tied",
            "set tie_word_embeddings to false in config.json",
        )
    assert all(isinstance(weight, DTensor) for _, weight in policy.named_weights())
    # A rank with fewer rows than others holds them in padded memory. This makes FSDP allocate it now. Otherwise the
    # first step would, and the buffers that checkpoints reserved for the old memory would be lost.
    policy.load_state_dict({}, strict=False)


def read_reference(
    settings: KlPenalty, model: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks, *, vocab_size: int
) -> Reference:
    """Read and shard the reference policy. Raises UserError if it cannot be read or has another vocabulary.

    `model`: the trained one, which is its own reference if the settings name no other.
    """
    path = settings.reference or model.path
    reference = model.model_copy(update={"path": path})
    try:
        policy = read_policy(reference, recipe, trainer, ranks, dtype=getattr(torch, model.dtype), frozen=True)
    except UserError as error:
        raise type(error)(str(error).replace("model.path", "recipe.kl.reference")) from error
    policy.eval()
    if policy.vocab_size != vocab_size:
        raise UserError(
            f"recipe.kl.reference = {path!r} has a vocabulary of {policy.vocab_size}, model.path one of {vocab_size}; "
            "give a model with the same tokenizer"
        )
    return Reference(policy, settings.coefficient)
