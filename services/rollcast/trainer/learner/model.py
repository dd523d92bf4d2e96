"""The policy: a Hugging Face causal LM, sharded over the ranks, that returns log-probabilities of given tokens.

    B sequences, S padded length, H hidden size, T tokens whose log-probability is wanted

Sequences are padded on the right and attention is causal, so no token ever sees padding and no mask is needed.
Master weights are float32; the forward pass runs in the model's dtype; gradients are reduced in float32.
Experts stay the fused 3-D weights that Transformers makes of them, and travel under these names. A router's auxiliary
losses are not computed: the objective of the recipe is all there is.
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

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.model import Model
from rollcast.trainer.learner.head import Head, LogitShape, Precision

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
FUSED_EXPERTS = {
    "mlp.experts.gate_up_proj": ["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"],
    "mlp.experts.down_proj": ["mlp.experts.*.down_proj.weight"],
}
"""Weights that Transformers fuses when it reads them, and what they are stored as. The generators know both names."""
PROBE_TOKENS = 4
"""Positions at which the head is compared with the model's own logits."""


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
            attn_implementation=_attention(config),
            output_loading_info=True,
        )
        missing, unsupported = sorted(report["missing_keys"]), _unsupported(causal_lm)
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:300]
        raise refused_by_the_world(
            error,
            f"model.path = {settings.path!r} cannot be read as a causal language model ({reason}); "
            "give a folder with config.json and safetensors, or a name on the hub",
        ) from error
    if missing:
        raise UserError(
            f"model.path = {settings.path!r} lacks {len(missing)} weights, first {missing[0]!r}; give a complete model"
        )
    if unsupported:
        raise UserError(
            f"model.path = {settings.path!r} uses {', '.join(unsupported)}, which this trainer does not support; "
            "choose another model"
        )
    return causal_lm


def logit_shape(config: Any) -> LogitShape:
    """Return what a model of this Hugging Face config does to its logits after the projection."""
    return LogitShape(
        cap=getattr(config, "final_logit_softcapping", None),
        scale=getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1.0),
    )


def _attention(config: Any) -> str | None:
    """Torch's fused attention knows no soft cap on the scores (Gemma 2), and leaves it out without a word."""
    return "eager" if getattr(config, "attn_logit_softcapping", None) is not None else None


def _unsupported(causal_lm: Any) -> list[str]:
    found = []
    if getattr(causal_lm.get_output_embeddings(), "bias", None) is not None:
        found.append("a bias of the output projection")
    elif not _head_is_known(causal_lm):
        found.append("logits that are not its output projection's as its config describes them")
    for conversion in getattr(causal_lm, "_weight_conversions", None) or ():
        names = list(conversion.target_patterns)
        if len(names) != 1 or FUSED_EXPERTS.get(names[0]) != list(conversion.source_patterns):
            found.append(f"weights that are stored under other names ({', '.join(names)})")
    return found


def _head_is_known(causal_lm: Any) -> bool:
    """Hold the model's own logits against what the head will make of the same hidden states."""
    hidden: list[Tensor] = []
    hook = causal_lm.base_model.register_forward_hook(lambda *call: hidden.append(call[-1].last_hidden_state))
    with torch.no_grad():
        logits = causal_lm(input_ids=torch.arange(PROBE_TOKENS)[None], use_cache=False).logits
    hook.remove()
    products = nn.functional.linear(hidden[-1], causal_lm.get_output_embeddings().weight)
    expected = logit_shape(causal_lm.config).apply_(products)
    return torch.allclose(expected, logits, rtol=0, atol=1e-4 * float(logits.abs().max()))


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
    head = Head(
        weight,
        precision=lm_head,
        shape=logit_shape(causal_lm.config),
        temperature=temperature,
        chunk_tokens=logits_chunk_tokens,
    )
    policy = Policy(causal_lm, head)
    if activation_checkpointing:
        if not causal_lm.supports_gradient_checkpointing:
            raise UserError("trainer.activation_checkpointing = true: this model cannot recompute; set it to false")
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
