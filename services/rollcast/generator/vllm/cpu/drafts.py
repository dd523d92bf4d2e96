"""Speculative decoding on CPU, where vLLM divides the logits of drafted tokens by memory that it
never wrote.

The temperature of each request, and its top-k and top-p, are repeated for each of its drafts. On
GPUs a Triton kernel does this. Its substitute for CPUs (`_expand_kernel_impl` in
vllm/utils/cpu_triton_utils.py) converts the output to int64, fills the copy and drops it: the
caller gets uninitialised memory. It also rounds a temperature of 0.7 down to 0.
"""

import functools

import torch


@functools.cache
def repeat_settings_for_drafts() -> None:
    """Let vLLM's rejection sampler repeat a request's settings by torch."""
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = _repeat_for_drafts


def _repeat_for_drafts(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: int = 0,
    replace_to: int = 0,
) -> torch.Tensor:
    """[requests] to [drafts of all requests]; `cu_num_tokens` [requests]: drafts of a request and
    of those before it. The names are vLLM's, which passes some of them by keyword.
    """
    drafts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = x.masked_fill(x == replace_from, replace_to)
    return values.repeat_interleave(drafts, output_size=num_tokens)
