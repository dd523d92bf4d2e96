"""Arguments that are passed on to vLLM's engine, under vLLM's own names; and why others are not, by
`engine_arguments.yaml`.

Passed is what leaves updates in flight, version spans and recorded log-probs as they are. What
changes numbers says so: it shows in the log-prob gap.
"""

import functools
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from rollcast.config.base import Settings
from rollcast.config.drafts import Drafts

FIELD = "generator.engine"


class EngineArguments(Settings):
    """vLLM's engine arguments beyond those that other settings make.

    Left out or null = vLLM's default.
    """

    quantization: Literal["fp8_per_tensor", "fp8_per_channel", "fp8_per_block"] | None = None
    """Generators hold the weights of linear layers in 8 bits; each version is quantised when it is
    applied. CHANGES NUMBERS. Not for mixtures of experts."""
    kv_cache_dtype: Literal["fp8", "fp8_e4m3", "fp8_e5m2"] | None = None
    """KV cache in 8 bits: twice the slots. CHANGES NUMBERS."""
    enable_expert_parallel: bool = False
    """With generator.tensor_parallel: whole experts on each worker in place of a slice of every
    one."""
    max_num_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of one step, prefill and decode together. More fill prompts quicker and take more
    memory."""
    enforce_eager: bool | None = None
    """No CUDA graphs: slower, less memory. Always so on CPU."""
    cudagraph_capture_sizes: (
        Annotated[tuple[int, ...], Field(min_length=1, max_length=100)] | None
    ) = None
    """Batch sizes that get a CUDA graph."""
    attention_backend: Annotated[str, Field(min_length=1)] | None = None
    """vLLM's name of a kernel, such as FLASH_ATTN. CHANGES NUMBERS by rounding."""
    speculative_config: Drafts | None = None
    """Speculative decoding: several tokens of a rollout in one step, if drafts of them are right.
    Exact. Not on GPUs so far."""
    disable_custom_all_reduce: bool = False
    """Between tensor-parallel workers: NCCL's own all-reduce."""


@functools.cache
def refused_arguments() -> dict[str, dict[str, str]]:
    """The table, read when a run file has an argument that is not passed on: `made_by` and
    `breaks`.
    """
    table = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(table))


def refused_argument(field: str) -> tuple[str, tuple[str, ...]] | None:
    """Why an argument is not passed, to follow its name, and the settings meant; None = it is not
    refused.
    """
    parent, _, name = field.rpartition(".")
    if parent != FIELD:
        return None
    if setting := refused_arguments()["made_by"].get(name):
        named_setting = setting.split(" ")[0].rstrip(":")
        return f"is not passed on: Rollcast sets it itself; use {setting}", (named_setting,)
    if reason := refused_arguments()["breaks"].get(name):
        return f"is not passed on: {reason}; remove it", ()
    return None
