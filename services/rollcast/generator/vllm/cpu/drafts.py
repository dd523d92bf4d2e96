"""Speculative decoding on CPU, where vLLM divides the logits of drafted tokens by memory that it
never wrote, and gives a model that drafts random weights.

The temperature of each request, and its top-k and top-p, are repeated for each of its drafts. On
GPUs a Triton kernel does this. Its substitute for CPUs (`_expand_kernel_impl` in
vllm/utils/cpu_triton_utils.py) converts the output to int64, fills the copy and drops it: the
caller gets uninitialised memory. It also rounds a temperature of 0.7 down to 0.

The model's own weights come from the trainer (`load_format` dummy). vLLM's first model runner, the
one for CPUs, ignores that a draft model has a `draft_load_config` of its own.
"""

import functools
from typing import Any

import torch


@functools.cache
def repeat_settings_for_drafts() -> None:
    """Let vLLM's rejection sampler repeat a request's settings by torch."""
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = _repeat_for_drafts


@functools.cache
def read_weights_of_drafting_model() -> None:
    """Let vLLM load a draft model by its own `draft_load_config`."""
    from vllm.config.utils import replace
    from vllm.model_executor.model_loader.utils import get_draft_load_config
    from vllm.v1.spec_decode.draft_model import DraftModelProposer

    create = DraftModelProposer._create_draft_vllm_config

    def create_draft_vllm_config(proposer: Any) -> Any:
        config = create(proposer)
        return replace(config, load_config=get_draft_load_config(config))

    DraftModelProposer._create_draft_vllm_config = create_draft_vllm_config


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
