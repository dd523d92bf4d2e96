"""The policy: a Hugging Face causal LM, sharded over the ranks, that returns log-probabilities of
given tokens.

    B sequences, S padded length, H hidden size, T tokens whose log-probability is wanted

Sequences are padded on the right and attention is causal, so no token ever sees padding and no mask
is needed. With `trainer.packing` they lie one after the other, and attention gets their bounds.
Master weights are float32; the forward pass runs in the model's dtype; gradients are reduced in
float32. Experts stay the fused 3-D weights of Transformers. A router's auxiliary losses are not
computed: only the recipe's objective is trained.
"""

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate

from rollcast.config.errors import UserError
from rollcast.config.lora import Lora
from rollcast.config.services import Recomputation
from rollcast.trainer.learner.adapters import published_adapters
from rollcast.trainer.learner.architecture import body, logit_shape, published_names
from rollcast.trainer.learner.attention import (
    PACKED,
    Packing,
    look_for_no_packed_rows,
    packed_attention,
    why_not_packed,
)
from rollcast.trainer.learner.head import Head, Precision
from rollcast.trainer.learner.layers import (
    compile_layer,
    decoder_layers,
    recompute,
    why_not_compiled,
)
from rollcast.trainer.learner.router_replay import RouterReplay
from rollcast.weights.plan.manifest import PIECE_BYTES, TensorSpec
from rollcast.weights.plan.snapshot import Snapshot


class Policy(nn.Module):
    """The unit that FSDP shards: body and head under one root."""

    def __init__(
        self,
        causal_lm: Any,
        head: Head,
        dtype: torch.dtype,
        replay: RouterReplay | None = None,
        lora: Lora | None = None,
    ) -> None:
        super().__init__()
        self.causal_lm = causal_lm
        self.dtype = dtype
        """Dtype of the forward pass."""
        self.lora = lora
        """Settings of the adapters; None = every weight is trained."""
        self._published = (
            published_names(causal_lm) if lora is None else published_adapters(causal_lm)
        )
        causal_lm.set_output_embeddings(head)
        self.replay = replay
        """Replays recorded expert choices; None = the routers choose themselves."""
        self.compilation = ""
        """Whether layers and head are compiled, and why, if that was decided when it was read."""

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        targets: Tensor,
        routed_experts: Tensor | None = None,
        packing: Packing | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return (log-probabilities [T], entropies [T]) of `targets` [T].

        `input_ids` [B, S]; `positions` [T]: index into the flattened [B * S] of the token BEFORE
        each target. `routed_experts`: see `RouterReplay.use`; ignored without a replay. `packing`:
        bounds of packed sequences, for a policy that was made for them.
        """
        if self.replay is not None:
            self.replay.use(routed_experts)
        bounds = {} if packing is None else packing.as_arguments()
        hidden = body(self.causal_lm)(
            input_ids=input_ids, use_cache=False, **bounds
        ).last_hidden_state
        logprobs, entropy = self.causal_lm.get_output_embeddings()(
            hidden.flatten(0, 1)[positions], targets
        )
        return logprobs, entropy

    @property
    def vocab_size(self) -> int:
        return int(self.causal_lm.get_output_embeddings().weight.shape[0])

    @property
    def is_tied(self) -> bool:
        return (
            self.causal_lm.get_output_embeddings().weight
            is self.causal_lm.get_input_embeddings().weight
        )

    def named_weights(self) -> Iterator[tuple[str, DTensor]]:
        """Yield (name in the module, sharded weight), frozen ones too; tied weights once."""
        for name, parameter in self.named_parameters():
            assert isinstance(parameter, DTensor)
            yield name.removeprefix("causal_lm."), parameter

    def trained_weights(self) -> Iterator[tuple[str, DTensor]]:
        """The float32 master weights among `named_weights`: all of them, or those
        of the adapters.
        """
        return ((name, weight) for name, weight in self.named_weights() if weight.requires_grad)

    def published_weights(self) -> Iterator[tuple[str, DTensor]]:
        """`trained_weights` under the names that the generators know."""
        for name, weight in self.trained_weights():
            yield self._published_name(name), weight

    def stored_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (Transformers' name, buffer) of those that a model's files hold, such as the bias
        of a router's choice.

        Every rank has them whole. Training does not change them, so with adapters they stay in the
        base's own files.
        """
        if self.lora is not None:
            return
        for name, buffer in self.causal_lm.named_buffers():
            if name in self._published:
                yield name, buffer

    def published_buffers(self) -> Iterator[tuple[str, DTensor]]:
        """`stored_buffers` under the names that the generators know, in rows over the ranks like
        the weights.
        """
        weight = self.causal_lm.get_output_embeddings().weight
        everywhere = [Replicate()] * weight.device_mesh.ndim
        for name, buffer in self.stored_buffers():
            replicated_buffer = DTensor.from_local(
                buffer, weight.device_mesh, everywhere, run_check=False
            )
            yield (
                self._published_name(name),
                replicated_buffer.redistribute(placements=weight.placements),
            )

    def _published_name(self, name: str) -> str:
        published = self._published[name]
        assert published is not None, name
        return published


def shard_policy(
    causal_lm: Any,
    *,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    lm_head: Precision,
    temperature: float,
    logits_chunk_tokens: int,
    activation_checkpointing: Recomputation,
    router_replay: bool = False,
    compiler: str | None = None,
    packing: bool = False,
    lora: Lora | None = None,
) -> Policy:
    """Return the model as a policy sharded over `mesh`: one FSDP unit per decoder layer, one for an
    untied head.

    A model on the meta device stays there: each rank's part has its shape, and no memory.
    `compiler`: torch.compile's backend for layers and head; None = neither is compiled. `packing`:
    for packed sequences. `lora`: the settings of the adapters that the model has.
    """
    weight = causal_lm.get_output_embeddings().weight
    head = Head(
        weight,
        precision=lm_head,
        shape=logit_shape(causal_lm.config),
        temperature=temperature,
        chunk_tokens=logits_chunk_tokens,
        compiler=compiler,
    )
    policy = Policy(
        causal_lm, head, dtype, RouterReplay(causal_lm) if router_replay else None, lora
    )
    look_for_no_packed_rows()
    if packing:
        if reason := why_not_packed(causal_lm, dtype=dtype, device=torch.device(mesh.device_type)):
            raise UserError(f"trainer.packing = true: {reason}; set it to false")
        transformers.AttentionInterface.register(PACKED, packed_attention)
        causal_lm.config._attn_implementation = PACKED
    layers = _prepared_layers(causal_lm, activation_checkpointing, compiler)
    mixed = MixedPrecisionPolicy()
    # A frozen model in this dtype has nothing to cast.
    if any(parameter.dtype != dtype for parameter in causal_lm.parameters()):
        mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=mixed)
    # A tied head stays in the root's unit, with the embedding whose weight it is.
    if not policy.is_tied:
        # Its backward follows its forward immediately: keep it gathered in between.
        fully_shard(head, mesh=mesh, mp_policy=mixed, reshard_after_forward=False)
    # The root last: its unit takes the parameters that the units below have left.
    fully_shard(policy, mesh=mesh, mp_policy=mixed)
    policy.train()
    return policy


def _prepared_layers(
    causal_lm: Any, recomputation: Recomputation, compiler: str | None
) -> list[nn.Module]:
    """The decoder layers, recomputed and compiled as asked. Raises UserError if they cannot be."""
    layers = decoder_layers(causal_lm)
    if compiler is not None and (reason := why_not_compiled(causal_lm)):
        raise UserError(f"trainer.compile = true: {reason}; set it to false")
    if recomputation and not layers:
        raise UserError(
            "trainer.activation_checkpointing: this model names no decoder layers; set it to false"
        )
    for layer in layers:
        recompute(layer, recomputation)
        if compiler is not None:
            compile_layer(layer, compiler)
    return layers


def weight_specs(policy: Policy, dtype: str) -> tuple[TensorSpec, ...]:
    """The published weights as `dtype` ("bfloat16"), and buffers as they are, under the names the
    generators know.
    """
    weights = [
        TensorSpec(name, dtype, tuple(weight.shape)) for name, weight in policy.published_weights()
    ]
    buffers = [
        TensorSpec(name, str(buffer.dtype).removeprefix("torch."), tuple(buffer.shape))
        for name, buffer in policy.published_buffers()
    ]
    return (*weights, *buffers)


def stage_shard(policy: Policy, snapshot: Snapshot) -> None:
    """Fill `snapshot` with this rank's rows, in the generators' dtype: what the rank's lane sends.

    The weights may change as soon as it returns.
    """
    weights = dict(policy.published_weights()) | dict(policy.published_buffers())
    with torch.no_grad():
        for name, rows in snapshot.views():
            # Converted on the device, so that half of the bytes cross the bus; in pieces, so that
            # it takes little.
            numbers = PIECE_BYTES // rows.element_size()
            local_weight = weights[name].to_local().view(-1)
            for packed, piece in zip(
                torch.split(rows.view(-1), numbers), torch.split(local_weight, numbers), strict=True
            ):
                packed.copy_(piece.to(rows.dtype), non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
