"""Layers with a recurrent state on CPU, where vLLM computes GatedDeltaNet (Qwen3-Next, Qwen3.5) in
bfloat16 alone, and Mamba 2 (Nemotron-H) without the states inside a prompt that its cache asks for.

vLLM's CPU kernels of GatedDeltaNet take bfloat16 ("CPU GDN attention requires BF16"), and
convolution weights in a packed form, into which a new version cannot be loaded. Here the same
recurrence (arXiv 2412.06464) is computed by torch in float32, token by token, from plain weights:

    S <- exp(g) S;  S <- S + beta (v - S k) k^T;  o = S q        S [values, keys] of each head

The state is where vLLM keeps it, so that its scheduler, its cache of states and its copies of them
stay in use.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def compute_recurrence_plainly() -> None:
    """Replace vLLM's CPU operation, before a layer registers it."""
    from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
    from vllm.utils.torch_utils import LayerNameType

    # torch reads the operation's schema from the types of its arguments.
    _gated_delta_net.__annotations__["layer_name"] = LayerNameType
    gdn_attention.cpu_gdn_attention_core = _gated_delta_net


@functools.cache
def split_prompts_at_states() -> None:
    """Let vLLM's scheduler end a step of Mamba 2 at each state that is cached.

    On GPUs the kernel returns the state inside a step too. That on CPU returns the last one alone,
    and vLLM would read beyond it (IndexError).
    """
    from vllm.model_executor.layers.mamba.abstract import MambaBase
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    MambaMixer2.get_kv_cache_spec = MambaBase.get_kv_cache_spec


@functools.cache
def keep_what_was_drawn() -> None:
    """Let a seeded request's prompt take several steps on a CPU, as one of Mamba 2 does.

    vLLM sets the request's random numbers back by what each step drew for nothing, and torch cannot
    on a CPU ("CPU Generator does not use offset"). Here they go on: the tokens then depend on the
    number of steps too.
    """
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    keep_books = CPUModelRunner._bookkeeping_sync

    def bookkeeping_sync(runner: Any, *arguments: Any, **keywords: Any) -> Any:
        batch = runner.input_batch
        generators = batch.generators
        batch.generators = {}
        try:
            return keep_books(runner, *arguments, **keywords)
        finally:
            batch.generators = generators

    CPUModelRunner._bookkeeping_sync = bookkeeping_sync


def _gated_delta_net(
    mixed_qkv: Tensor, b: Tensor, a: Tensor, core_attn_out: Tensor, layer_name: Any
) -> None:
    """vLLM's custom operation: fills `core_attn_out` [T, heads, values] from the projected tokens
    of this step.
    """
    from vllm.forward_context import get_forward_context
    from vllm.utils.torch_utils import _resolve_layer_name

    context = get_forward_context()
    layer = context.no_compile_layers[_resolve_layer_name(layer_name)]
    if context.attn_metadata is None:  # a dry run
        return
    assert isinstance(context.attn_metadata, dict)
    step = context.attn_metadata[layer.prefix]
    bounds = step.non_spec_query_start_loc.tolist()
    slots = step.non_spec_state_indices_tensor
    decodes = step.num_decodes
    if decodes:
        rows = slice(0, decodes)
        out = _advance(layer, slots[rows], mixed_qkv[rows, None], a[rows, None], b[rows, None])
        core_attn_out[rows] = out[:, 0]
    for index in range(decodes, decodes + step.num_prefills):
        rows = slice(bounds[index], bounds[index + 1])
        slot = slots[index : index + 1]
        if not step.has_initial_state[index]:
            # The slot holds the state of a request that has ended.
            for state in layer.kv_cache:
                state[slot] = 0
        core_attn_out[rows] = _advance(
            layer, slot, mixed_qkv[None, rows], a[None, rows], b[None, rows]
        )[0]


def _advance(layer: Any, slots: Tensor, mixed: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Advance the states in `slots` [N] by S tokens: `mixed` [N, S, channels], `a` and `b` [N, S,
    heads].

    Returns [N, S, heads, values].
    """
    recurrent_states = layer.kv_cache[1]
    query, key, value = _convolve(layer, slots, mixed)
    # exp(g) and beta of the formula above, one of each per head and token.
    decay = (-layer.A_log.float().exp() * F.softplus(a.float() + layer.dt_bias.float())).exp()
    strength = b.float().sigmoid()
    state = recurrent_states[slots].float()
    outputs = []
    for at in range(mixed.shape[1]):
        # S <- exp(g) S
        state = state * decay[:, at, :, None, None]
        # S <- S + beta (v - S k) k^T
        retrieved_value = (state @ key[:, at, :, :, None])[..., 0]
        change = strength[:, at, :, None] * (value[:, at] - retrieved_value)
        state = state + change[..., None] * key[:, at, :, None]
        # o = S q
        outputs.append((state @ query[:, at, :, :, None])[..., 0])
    recurrent_states[slots] = state.to(recurrent_states.dtype)
    return torch.stack(outputs, dim=1)


def _convolve(layer: Any, slots: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in float32 [N, S, heads, size], after the convolution over the last
    few tokens.
    """
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    states = layer.kv_cache[0]
    if is_conv_state_dim_first():
        states = states.transpose(1, 2)
    inputs_with_state = torch.cat([states[slots].to(mixed.dtype), mixed], dim=1)
    # The last inputs are the state that the next step's convolution begins with.
    states[slots] = inputs_with_state[:, -states.shape[1] :].to(states.dtype)
    kernel = layer.conv1d.weight
    channels = F.conv1d(
        inputs_with_state.transpose(1, 2), kernel, layer.conv1d.bias, groups=kernel.shape[0]
    )
    batch, length, _ = mixed.shape
    flat = F.silu(channels).transpose(1, 2).reshape(batch * length, -1)
    query, key, value = (
        tensor.view(batch, length, *tensor.shape[-2:]).float()
        for tensor in layer.rearrange_mixed_qkv(flat)
    )
    # Several heads of values share one head of queries and keys.
    repeats = value.shape[2] // key.shape[2]
    query = _normalise(query).repeat_interleave(repeats, dim=2) * key.shape[-1] ** -0.5
    return query, _normalise(key).repeat_interleave(repeats, dim=2), value


def _normalise(vectors: Tensor) -> Tensor:
    # Added to the squared length of queries and keys, as in the kernels for GPUs and in
    # Transformers
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + 1e-6)
