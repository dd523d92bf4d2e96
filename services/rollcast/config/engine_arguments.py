"""Arguments that are passed on to vLLM's engine, under vLLM's own names; and why others are not.

Passed is what leaves updates in flight, version spans and recorded log-probs as they are. What
changes numbers says so: it shows in the log-prob gap.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings

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
    disable_custom_all_reduce: bool = False
    """Between tensor-parallel workers: NCCL's own all-reduce."""


MADE_BY: dict[str, str] = {
    "model": "model.path",
    "tokenizer": "model.path",
    "dtype": "model.dtype",
    "max_model_len": "model.max_length",
    "trust_remote_code": "model.trust_remote_code",
    "hf_overrides": "recipe.lm_head",
    "generation_config": "recipe.temperature",
    "override_generation_config": "recipe.temperature",
    "seed": "seed",
    "max_num_seqs": "generator.slots",
    "enable_lora": "model.lora",
    "max_lora_rank": "model.lora",
    "max_loras": "model.lora: a run has one adapter",
    "lora_target_modules": "model.lora",
    "tensor_parallel_size": "generator.tensor_parallel",
    "block_size": "generator.block_size",
    "gpu_memory_utilization": "generator.gpu_memory_utilization",
    "kv_cache_memory_bytes": "generator.gpu_kv_cache_gib (on CPU generator.cpu_kv_cache_gib)",
    "num_gpu_blocks_override": (
        "generator.gpu_memory_utilization (on CPU generator.cpu_kv_cache_gib)"
    ),
    "weight_transfer_config": "weights",
    "enable_return_routed_experts": "recipe.router_replay",
    "aux_output_config": "recipe.router_replay",
    "data_parallel_size": (
        "local.generators (on a cluster the number of generators): each is a replica"
    ),
    "data_parallel_size_local": (
        "local.generators (on a cluster the number of generators): each is a replica"
    ),
}
"""The setting that makes an argument of vLLM's."""
_DRAFTED = (
    "log-probs of drafted tokens did not come back right from vLLM 0.32 on CPU, and were not tried "
    "elsewhere"
)
BREAKS: dict[str, str] = {
    "speculative_config": _DRAFTED,
    "spec_method": _DRAFTED,
    "spec_model": _DRAFTED,
    "spec_tokens": _DRAFTED,
    "load_format": "no weights are read: every version comes from the trainer",
    "enable_prefix_caching": (
        "the second leg of a rollout reuses its own blocks in that cache, and records how many"
    ),
    "logprobs_mode": (
        "the loss needs the log-probs of the distribution that was sampled, which are "
        "processed_logprobs"
    ),
    "logits_processors": "their effect on the log-probs is unknown to the trainer",
    "scheduling_policy": (
        "priorities preempt rollouts and compute their KV cache again with other weights"
    ),
    "scheduler_cls": "updates in flight rely on vLLM's own scheduler and its pause",
    "worker_cls": "the worker is vLLM's own, and Rollcast's extension of it receives the weights",
    "worker_extension_cls": "it is Rollcast's, which receives the weights",
    "distributed_executor_backend": (
        "Rollcast's warden ends the processes of vLLM's own executors alone"
    ),
    "pipeline_parallel_size": (
        "updates between the stages of a pipeline were never shown; use generator.tensor_parallel"
    ),
    "moe_backend": (
        "other kernels than the chosen one reorder the experts' weights, and no version could be "
        "loaded in place"
    ),
    "linear_backend": "kernels that reorder weights take no version in place",
    "enable_eplb": (
        "it moves experts between workers, and a version would be loaded into their former places"
    ),
    "cpu_offload_gb": "a version is loaded on the GPU, and offloaded weights are elsewhere",
    "offload_backend": "a version is loaded on the GPU, and offloaded weights are elsewhere",
    "enable_sleep_mode": "it discards weights and KV caches that rollouts under way rely on",
    "kv_transfer_config": "KV entries of another process may be of other weights than recorded",
    "kv_offloading_size": "KV entries that come back may be of other weights than recorded",
    "kv_sharing_fast_prefill": (
        "the KV entries of a prompt would not be those that the trainer computes"
    ),
    "quantization_config": (
        "it can name other forms than quantization, and only those can be updated in flight"
    ),
}
"""Why an argument of vLLM's would break updates in flight or the exactness of recorded
log-probs."""


def refused_argument(field: str) -> tuple[str, tuple[str, ...]] | None:
    """Why an argument is not passed, to follow its name, and the settings meant; None = it is not
    refused.
    """
    parent, _, name = field.rpartition(".")
    if parent != FIELD:
        return None
    if name in MADE_BY:
        setting = MADE_BY[name]
        return f"is not passed on: Rollcast sets it itself; use {setting}", (
            setting.split(" ")[0].rstrip(":"),
        )
    if name in BREAKS:
        return f"is not passed on: {BREAKS[name]}; remove it", ()
    return None
