"""Reads a model's folder into a sharded policy: each rank reads only its own slices of the weights.

    config -> skeleton (meta device) -> shard (nothing in memory yet) -> read the slices, cast
           -> other buffers

Transformers' loader supports sharded parameters: it asks each stored tensor for this rank's slice
alone, and stacks only the experts that this rank holds. Here it reads one parameter after the
other.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch.distributed.tensor import DTensor
from transformers.utils.logging import disable_progress_bar

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.model import TEXT_MODELS, Model, check_folder
from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.config.recipe import KlPenalty, Recipe
from rollcast.config.services import Trainer
from rollcast.trainer.learner.adapters import add_adapters, make_adapters, without_adapters
from rollcast.trainer.learner.architecture import skeleton, whole_config
from rollcast.trainer.learner.compilation import decide
from rollcast.trainer.learner.layers import COMPILER
from rollcast.trainer.learner.learner import Reference
from rollcast.trainer.learner.model import Policy, shard_policy
from rollcast.trainer.learner.quantised_files import dequantise
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.stored_model import stored_model
from rollcast.trainer.learner.stored_tensors import Slices
from rollcast.trainer.learner.teacher import HeldTeacher
from rollcast.trainer.learner.unsupported import Unsupported

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


def read_policy(
    settings: Model,
    recipe: Recipe,
    trainer: Trainer,
    ranks: Ranks,
    *,
    dtype: torch.dtype,
    frozen: bool = False,
    seed: int = 0,
) -> Policy:
    """Read and shard a model: parameters in `dtype`, buffers as the model makes them. Collective.

    `frozen`: for forward passes alone. With model.lora the model's own weights are frozen and in
    the model's dtype, and `seed` makes the adapters. Raises UserError if it cannot be read or
    cannot be trained here.
    """
    disable_progress_bar()
    lora = None if frozen else settings.lora
    check_folder(settings.path)
    try:
        _check_whole(Path(settings.path))
        causal_lm = skeleton(settings)
        for parameter in causal_lm.parameters():  # of no size yet
            parameter.data = parameter.data.to(
                dtype if lora is None else getattr(torch, settings.dtype)
            )
        causal_lm.requires_grad_(not frozen)
        if lora is not None:
            _check_base(settings, causal_lm)
            add_adapters(causal_lm, lora)
        compiles, sentence = decide(trainer.compile, causal_lm, ranks.device)
        policy = shard_policy(
            causal_lm,
            mesh=ranks.mesh,
            dtype=getattr(torch, settings.dtype),
            lm_head=recipe.lm_head,
            temperature=recipe.temperature,
            logits_chunk_tokens=trainer.logits_chunk_tokens,
            activation_checkpointing=False if frozen else trainer.activation_checkpointing,
            router_replay=recipe.router_replay and not frozen,
            compiler=COMPILER if compiles else None,
            packing=trainer.packing,
            lora=lora,
        )
        policy.compilation = sentence
        _fill(policy, settings.path, ranks, seed)
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


def _fill(policy: Policy, path: str, ranks: Ranks, seed: int) -> None:
    """Read the stored weights into a sharded policy, and make its adapters."""
    _check_experts(policy, ranks)
    causal_lm = policy.causal_lm
    stored = stored_model(path, causal_lm)
    quantization = getattr(causal_lm.config, "quantization_config", None)
    dequantise(stored.rest, quantization)  # an export needs it, so it refuses before the run
    with without_adapters(causal_lm):
        _read_weights(policy, dequantise(stored.text, quantization), ranks.device)
    make_adapters(policy, seed, ranks.device)
    # A rank with fewer rows than others holds them in padded memory. This makes FSDP allocate
    # it now. Otherwise the first step would, and the buffers that checkpoints reserved for the
    # old memory would be lost.
    policy.load_state_dict({}, strict=False)


def _check_whole(folder: Path) -> None:
    """Raises Unsupported for the export of a run with model.lora."""
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise Unsupported(
            "is an adapter alone", "give the folder that `rollcast model merge` makes of it"
        )


def _check_base(settings: Model, causal_lm: Any) -> None:
    """Raises Unsupported if vLLM would read another base from the files of `model.path` than the
    trainer does.
    """
    # vLLM does not know the text model by the names of the whole one.
    if whole_config(settings).model_type in TEXT_MODELS:
        raise Unsupported(
            "has more parts than its text model (model.lora)", "give its text model alone"
        )
    if hasattr(causal_lm.config, "quantization_config"):
        raise Unsupported("is quantised, and model.lora is set", "give the model in 16 bits")


def _check_experts(policy: Policy, ranks: Ranks) -> None:
    """Transformers fails on a rank without experts: it cannot stack an empty list."""
    for name, weight in policy.named_weights():
        if weight.dim() == 3 and weight.shape[0] < ranks.num_shards:
            raise UserError(
                f"{ranks.num_shards} trainer ranks are more than the {weight.shape[0]} experts of "
                f"a layer ({name}); give the trainer at most {weight.shape[0]} ranks"
            )


def _read_weights(policy: Policy, stored: Mapping[str, Slices], device: torch.device) -> None:
    """Fill parameters and buffers. Raises Unsupported, UserError and what Transformers raises."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig

    causal_lm = policy.causal_lm
    dtype = next(policy.parameters()).dtype
    is_tied = policy.is_tied
    loading = LoadStateDictConfig(
        pretrained_model_name_or_path=causal_lm.config.name_or_path,
        device_map={"": device},
        dtype=dtype,
        weight_mapping=get_model_conversion_mapping(causal_lm),
    )
    # Without threads, which run ahead of the stacking of experts by any number of layers: with them
    # a rank held up to 0.8 GB more than its shard of 1.2 GB, and was no quicker (`python -m
    # lab.start`).
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    report, _ = convert_and_load_state_dict_in_model(causal_lm, dict(stored), loading)
    report = causal_lm._finalize_model_loading(causal_lm, loading, report)
    unset_keys = sorted(report.missing_keys)
    if unset_keys:
        raise UserError(
            f"model.path = {causal_lm.config.name_or_path!r} lacks {len(unset_keys)} weights, "
            f"first {unset_keys[0]!r}; give a complete model"
        )
    if policy.is_tied is not is_tied:
        raise Unsupported(
            "stores two different matrices that its config calls tied",
            "set tie_word_embeddings to false in config.json",
        )
    assert all(isinstance(weight, DTensor) for _, weight in policy.named_weights())


def read_reference(
    settings: KlPenalty,
    model: Model,
    recipe: Recipe,
    trainer: Trainer,
    ranks: Ranks,
    *,
    trained: Policy,
) -> Reference:
    """Read and shard the reference policy. Raises UserError if it cannot be read or has another
    vocabulary.

    `model` and `trained`: the trained one, which is its own reference if the settings name no
    other. With LoRA it is that without a second copy: its adapters are turned off.
    """
    path = settings.reference or model.path
    if trained.lora is not None and path == model.path:
        return Reference(trained, settings.coefficient, settings.estimator)
    policy = _read_frozen(path, "recipe.kl.reference", model, recipe, trainer, ranks)
    if policy.vocab_size != trained.vocab_size:
        raise UserError(
            f"recipe.kl.reference = {path!r} has a vocabulary of {policy.vocab_size}, model.path "
            f"one of {trained.vocab_size}; give a model with the same tokenizer"
        )
    return Reference(policy, settings.coefficient, settings.estimator)


def read_teacher(
    path: str,
    coefficient: float,
    model: Model,
    recipe: Recipe,
    trainer: Trainer,
    ranks: Ranks,
    *,
    vocab_size: int,
) -> HeldTeacher:
    """Read and shard the teacher of a distillation. Raises UserError if it cannot be read or has
    fewer tokens.

    It may have more: models of one family and tokenizer pad their vocabularies to different sizes.
    """
    setting = "recipe.distillation.teacher.path"
    policy = _read_frozen(path, setting, model, recipe, trainer, ranks)
    if policy.vocab_size < vocab_size:
        raise UserError(
            f"{setting} = {path!r} has a vocabulary of {policy.vocab_size}, model.path one of "
            f"{vocab_size}; give a teacher with the same tokenizer"
        )
    return HeldTeacher(Reference(policy, 0.0).logprobs, coefficient)


def _read_frozen(
    path: str, setting: str, model: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks
) -> Policy:
    """Read a model for forward passes alone. UserError names `setting`."""
    frozen = model.model_copy(update={"path": path})
    try:
        policy = read_policy(
            frozen, recipe, trainer, ranks, dtype=getattr(torch, model.dtype), frozen=True
        )
    except UserError as error:
        raise type(error)(str(error).replace("model.path", setting)) from error
    policy.eval()
    return policy
