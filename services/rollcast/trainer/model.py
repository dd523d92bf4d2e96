"""The policy: a Hugging Face causal LM, sharded over the ranks, that returns log-probabilities of given tokens.

    B sequences, S padded length, H hidden size, T tokens whose log-probability is wanted

Sequences are padded on the right and attention is causal, so no token ever sees padding and no mask is needed.
Master weights are float32; the forward pass runs in the model's dtype; gradients are reduced in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.trainer.head import Head, Precision

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    RuntimeError,
    ImportError,
    SafetensorError,
    StrictDataclassError,
)
UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of models that change the logits after the projection; the head knows nothing of them."""


class Policy(nn.Module):
    """The unit that FSDP shards: body and head under one root."""

    def __init__(self, causal_lm: Any, head: Head) -> None:
        super().__init__()
        self.causal_lm = causal_lm
        causal_lm.set_output_embeddings(head)

    def forward(self, input_ids: Tensor, positions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (log-probabilities [T], entropies [T]) of `targets` [T].

        `input_ids` [B, S]; `positions` [T]: index into the flattened [B * S] of the token BEFORE each target.
        """
        hidden = self.causal_lm.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
        logprobs, entropy = self.causal_lm.get_output_embeddings()(hidden.flatten(0, 1)[positions], targets)
        return logprobs, entropy

    @property
    def vocab_size(self) -> int:
        return int(self.causal_lm.get_output_embeddings().weight.shape[0])

    def named_weights(self) -> Iterator[tuple[str, DTensor]]:
        """Yield (Hugging Face name, sharded float32 master weight); tied weights once."""
        for name, parameter in self.named_parameters():
            assert isinstance(parameter, DTensor)
            yield name.removeprefix("causal_lm."), parameter


def read_causal_lm(settings: Model) -> Any:
    """Read the model in float32, without dropout. Raises UserError if that fails or if it cannot be trained here."""
    disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(settings.path, trust_remote_code=settings.trust_remote_code)
        for name, value in config.to_dict().items():
            if isinstance(value, float) and ("dropout" in name or name.endswith("pdrop")):
                setattr(config, name, 0.0)  # else the ratio to the generators' log-probs would be noise
        causal_lm, report = AutoModelForCausalLM.from_pretrained(
            settings.path,
            config=config,
            dtype=torch.float32,
            trust_remote_code=settings.trust_remote_code,
            output_loading_info=True,
        )
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"model.path = {settings.path!r} cannot be read as a causal language model ({reason}); "
            "give a folder with config.json and safetensors, or a name on the hub"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise UserError(
            f"model.path = {settings.path!r} lacks {len(missing)} weights, first {missing[0]!r}; give a complete model"
        )
    _refuse_unsupported(causal_lm, settings)
    return causal_lm


def _refuse_unsupported(causal_lm: Any, settings: Model) -> None:
    found = [name for name in UNSUPPORTED if getattr(causal_lm.config, name, None) not in (None, 1, 1.0)]
    if getattr(causal_lm.get_output_embeddings(), "bias", None) is not None:
        found.append("a bias of the output projection")
    if getattr(causal_lm, "_weight_conversions", None):
        found.append("weights that are stored under other names (fused experts)")  # the generators would not know them
    if found:
        raise UserError(
            f"model.path = {settings.path!r} uses {', '.join(found)}, which this trainer does not support; "
            "choose another model"
        )


def shard_policy(
    causal_lm: Any,
    *,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    lm_head: Precision,
    temperature: float,
    logits_chunk_tokens: int,
    activation_checkpointing: bool,
) -> Policy:
    """Return the model as a policy sharded over `mesh`: one FSDP unit per decoder layer, one for an untied head."""
    weight = causal_lm.get_output_embeddings().weight
    tied = weight is causal_lm.get_input_embeddings().weight
    head = Head(weight, precision=lm_head, temperature=temperature, chunk_tokens=logits_chunk_tokens)
    policy = Policy(causal_lm, head)
    if activation_checkpointing:
        causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    mixed = MixedPrecisionPolicy()
    if dtype != weight.dtype:
        mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layer_classes = set(causal_lm._no_split_modules or ())
    for module in list(causal_lm.modules()):
        if type(module).__name__ in layer_classes:
            fully_shard(module, mesh=mesh, mp_policy=mixed)
    if not tied:
        # Its backward follows its forward at once: keep it gathered in between.
        fully_shard(head, mesh=mesh, mp_policy=mixed, reshard_after_forward=False)
    fully_shard(policy, mesh=mesh, mp_policy=mixed)
    policy.train()
    return policy
