"""Attention in the learner: the kernel that computes it, and sequences that are packed instead of
padded.

`scaled_dot_product_attention` chooses among torch's kernels by device, dtype and shape.
`trainer.attention` puts one of them first; the others stay, for layers that it cannot compute.
Packed sequences lie one after the other in a single row [1, T]. On a GPU flash attention gets their
bounds; on a CPU each one is computed by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rollcast.config.errors import UserError
from rollcast.config.services import AttentionKernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
"""torch's kernels by our names."""
PACKED = "rollcast_packed"
"""Transformers' name of our attention. It has no mask function, so that Transformers makes no mask
for it."""
NOT_PASSED = -1
"""The model's attention passes no window: some models have it in the mask alone."""
CHANGES_SCORES = ("s_aux", "softcap", "position_bias")
"""Arguments with which other attentions change scores; this one does not know them."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Bounds of the sequences of a packed row [1, T]."""

    position_ids: Tensor
    """[1, T] position of each token in its own sequence."""
    bounds: Tensor
    """[N + 1] int32: sequence i has the tokens [bounds[i], bounds[i + 1])."""
    longest: int
    """Tokens of the longest sequence."""

    def as_arguments(self) -> dict[str, Any]:
        """Arguments of a Transformers model, which hands all except the first to its attention."""
        return {
            "position_ids": self.position_ids,
            "cu_seq_lens_q": self.bounds,
            "cu_seq_lens_k": self.bounds,
            "max_length_q": self.longest,
            "max_length_k": self.longest,
        }


def look_for_no_packed_rows() -> None:
    """Transformers looks in each forward pass whether the positions of its rows are those of packed
    sequences, and the host waits for the answer. Padded rows are not, and packed ones have an
    attention of their own.
    """
    from transformers import (
        masking_utils,
    )  # it imports torch's compiler, as every model's code does

    masking_utils.find_packed_sequence_indices = lambda position_ids: None


@contextmanager
def preferring(kernel: AttentionKernel) -> Iterator[None]:
    """Put a kernel first, for forward and backward passes inside; "auto" leaves torch's order."""
    if kernel == "auto":
        yield
        return
    first = BACKENDS[kernel]
    other_kernels = [backend for backend in BACKENDS.values() if backend is not first]
    with sdpa_kernel([first, *other_kernels], set_priority=True):
        yield


def kernel_in_use(
    config: Any, *, dtype: torch.dtype, device: torch.device, preferred: AttentionKernel
) -> str:
    """Name of the kernel that computes layers without a window,
    as torch's dispatcher answers now.
    """
    if config._attn_implementation == PACKED:
        return "flash, packed" if device.type == "cuda" else "one sequence at a time"
    if config._attn_implementation != "sdpa":
        return str(config._attn_implementation)
    try:
        heads = config.num_attention_heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        size, value_size = _head_sizes(config)
    except (AttributeError, TypeError):  # a configuration of another form
        return "sdpa"
    shapes = [
        # Length of the sequence for which the dispatcher is asked which kernel it takes
        (1, count, 128, head_size)
        for count, head_size in ((heads, size), (key_heads, size), (key_heads, value_size))
    ]
    # With gradient, as in training: a kernel may have no backward pass for these shapes.
    query, key, value = (
        torch.zeros(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes
    )
    with preferring(preferred):
        chosen = torch._fused_sdp_choice(
            query, key, value, is_causal=True, enable_gqa=key_heads != heads
        )
    return next(
        (name for name, backend in BACKENDS.items() if backend == SDPBackend(chosen)),
        f"number {chosen}",
    )


def why_not_packed(causal_lm: Any, *, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the sequences of this model cannot be packed; None = they can."""
    config = causal_lm.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {
        "full_attention",
        "sliding_attention",
    }
    if kinds:
        return f"this model has layers of the kind {min(kinds)}, which would see other sequences"
    if config._attn_implementation != "sdpa" or not causal_lm._supports_attention_backend:
        return "this model's attention cannot be replaced"
    if device.type == "cuda" and dtype not in (torch.bfloat16, torch.float16):
        return "flash attention needs model.dtype bfloat16"
    if any(isinstance(module, torch.nn.Conv1d) for module in causal_lm.modules()):
        return "this model has convolutions over tokens, which would see other sequences"
    return _why_no_flash(config, device) if device.type == "cuda" else None


def _why_no_flash(config: Any, device: torch.device) -> str | None:
    size, value_size = _head_sizes(config)
    # Flash attention takes head sizes that are multiples of 8, up to 256
    if size != value_size or size > 256 or size % 8:
        return f"flash attention has no heads of {size} with values of {value_size}"
    # Ampere: the first GPUs, by major compute capability, that flash attention runs on.
    least_flash_capability = 8
    if torch.cuda.get_device_capability(device)[0] < least_flash_capability:
        return (
            f"flash attention needs a GPU of compute capability {least_flash_capability}.0 or more"
        )
    return None


def _head_sizes(config: Any) -> tuple[int, int]:
    """Sizes of the heads: of queries and keys, and of values, which differ in latent attention."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    value_size = getattr(config, "v_head_dim", None)
    if value_size is None:
        return size, size
    plain = getattr(config, "qk_nope_head_dim", None)
    return (size if plain is None else plain + config.qk_rope_head_dim), value_size


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = NOT_PASSED,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    **other_arguments: Any,
) -> tuple[Tensor, None]:
    """Attention of every token to those before it in its own sequence, as Transformers calls it.

    `query` [1, heads, T, head size]; `key` and `value` with their own number of heads. Returns [1,
    T, heads, head size]. Raises UserError: the model changes scores in a way that it does not know.
    """
    if attention_mask is not None or any(
        other_arguments.get(name) is not None for name in CHANGES_SCORES
    ):
        raise UserError(
            "trainer.packing = true: this model's attention has a mask or scores of its own; set "
            "it to false"
        )
    if sliding_window == NOT_PASSED:
        sliding_window = getattr(module, "sliding_window", None) or None
    if query.is_cuda:
        states = (query, key, value)
        return bounded_flash(
            *states, cu_seq_lens_q, max_length_q, scaling=scaling, window=sliding_window
        ), None
    lengths = cu_seq_lens_q.diff().tolist()
    sequences = zip(
        *(torch.split(states, lengths, dim=2) for states in (query, key, value)), strict=True
    )
    outputs = [
        _one_sequence(*states, scaling=scaling, window=sliding_window) for states in sequences
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def bounded_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    *,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """All packed sequences in one call of flash attention, which a GPU has; otherwise as
    `packed_attention`.
    """
    from torch.nn.attention.varlen import (
        varlen_attn,
    )  # imports torch's compiler, seconds that only a GPU needs

    attended = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        bounds,
        bounds,
        longest,
        longest,
        scale=scaling,
        # Tokens to the left besides the token itself, and none to the right: attention is causal.
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=True,
    )
    assert isinstance(attended, Tensor)
    return attended[None]


def _one_sequence(
    query: Tensor, key: Tensor, value: Tensor, *, scaling: float | None, window: int | None
) -> Tensor:
    length = query.shape[2]
    mask = None
    if window is not None and length > window:
        positions = torch.arange(length, device=query.device)
        distance = positions[:, None] - positions
        mask = (distance >= 0) & (distance < window)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        # torch refuses a mask together with `is_causal`.
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
