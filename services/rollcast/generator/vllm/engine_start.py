"""How vLLM's engine is started: its environment, its arguments, and whether the run's model fits
them.

Imports neither torch nor vLLM, because the generator imports it before it sets the environment that
both read.
"""

import os
import zlib
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rollcast.config import engine_arguments as passed
from rollcast.config.drafts import Drafts, check_gpu_drafts
from rollcast.config.errors import UserError
from rollcast.config.lora import Lora, check_gpu_dtype
from rollcast.config.model import TEXT_MODELS, check_folder, text_part
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig
from rollcast.config.services import Generator
from rollcast.rollouts.codec import MAX_MESSAGE_BYTES
from rollcast.telemetry.gpus import expected_gpus, unusable
from rollcast.telemetry.heavy_imports import pause_garbage_collection

WORKER_EXTENSION = "rollcast.generator.vllm.worker.GeneratorWorker"


class RoutingShape(NamedTuple):
    """The expert choices of one token."""

    layers: list[int]
    """Indices of the layers that have a router."""
    experts: int
    """Experts per layer."""
    choices: int
    """Experts that a router chooses per token and layer."""


def has_gpus() -> bool:
    """Whether the driver reports GPUs.

    Does not import torch, which would read the environment too early.
    """
    return Path("/proc/driver/nvidia/gpus").is_dir()


def set_environment(generator: Generator) -> None:
    """Set the variables that vLLM reads when it is imported; call it before.

    Raises UserError if generator.cpu is not a core of this process.
    """
    cores = os.sched_getaffinity(0)
    if generator.cpu is not None and generator.cpu not in cores:
        raise UserError(
            f"generator.cpu = {generator.cpu}: this process may run on {sorted(cores)}; choose one "
            "of them"
        )
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    # A fork of a process with threads may hang, and its environment does not differ from its
    # parent's (EngineFolder).
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(generator.cpu_kv_cache_gib)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not has_gpus():
        # One worker has one core, and a second OpenMP thread would compete with the trainer for the
        # next one.
        os.environ["OMP_NUM_THREADS"] = "1"
    workers = generator.tensor_parallel
    if generator.cpu is not None:
        cpus = range(generator.cpu, generator.cpu + workers)
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, cpus))
    # vLLM would give each worker a whole NUMA node.
    elif workers > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, sorted(cores)[:workers]))


def engine_arguments(config: RunConfig, name: str) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs for this run, on this device.

    Raises UserError: there must be a GPU, and this build of vLLM is for CPUs; or a GPU cannot serve
    these adapters.
    """
    from vllm.platforms import current_platform

    generator = config.generator
    arguments: dict[str, Any] = {
        "model": config.model.path,
        "dtype": config.model.dtype,
        "max_model_len": config.model.max_length,
        "trust_remote_code": config.model.trust_remote_code,
        "max_num_seqs": generator.most_slots,
        "tensor_parallel_size": generator.tensor_parallel,
        "seed": zlib.crc32(f"{config.seed}/{name}".encode()),
        "enable_prefix_caching": True,
        # As the trainer's, of layers that have one: rounded to the model's dtype it would drift
        # from token to token.
        "mamba_ssm_cache_dtype": "float32",
        # After temperature, top-p and top-k: of the distribution that was sampled from.
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": WORKER_EXTENSION,
        "hf_overrides": partial(served_config, wide_head=config.recipe.lm_head == "fp32"),
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    if generator.block_size is not None:
        arguments["block_size"] = generator.block_size
    if config.model.lora is not None:
        arguments |= adapter_arguments(config.model.lora)
    if config.recipe.router_replay:
        arguments["enable_return_routed_experts"] = True
    if current_platform.is_cpu():
        if expected_gpus():
            raise unusable(None, "")
        # One process less than vLLM's default, and no compilation: tiny models start in half the
        # time.
        if generator.tensor_parallel == 1:
            arguments["distributed_executor_backend"] = (
                "vllm.v1.executor.uniproc_executor.UniProcExecutor"
            )
        arguments["enforce_eager"] = True
    else:
        check_gpu_dtype(config.model.lora, config.model.dtype)
        check_gpu_drafts(generator.engine.speculative_config)
        # vLLM takes this share of the device at its start; the rest is left for a staged version
        # and pieces.
        arguments["gpu_memory_utilization"] = generator.gpu_memory_utilization
        if generator.gpu_kv_cache_gib is not None:
            arguments["kv_cache_memory_bytes"] = int(generator.gpu_kv_cache_gib * (1 << 30))
        # The other kernels reorder the weights of experts: a new version could not be loaded in
        # place.
        arguments["moe_backend"] = "triton"
    arguments |= passed_arguments(generator.engine)
    if generator.engine.speculative_config is not None:
        arguments |= draft_arguments(generator.engine.speculative_config, generator.tensor_parallel)
    return arguments


def draft_arguments(drafts: Drafts, num_workers: int) -> dict[str, Any]:
    """vLLM's arguments for speculative decoding. Raises UserError if the model that drafts is not
    there.
    """
    if drafts.model is not None:
        check_folder(drafts.model, f"{passed.FIELD}.speculative_config.model")
    speculative_config = drafts.model_dump(mode="json", exclude_none=True)
    # The trainer sends the model's weights, not those of a model that drafts.
    speculative_config["draft_load_config"] = {"load_format": "auto"}
    speculative_config["draft_tensor_parallel_size"] = num_workers
    return {
        "speculative_config": speculative_config,
        # Steps would be scheduled before it is known how many drafts were accepted, and an update
        # has to know which KV blocks the old weights have filled.
        "async_scheduling": False,
    }


def check_drafts(drafts: Drafts | None, *, is_recurrent: bool) -> None:
    """Raise UserError if the model keeps states, which cover refused drafts too."""
    if drafts is not None and is_recurrent:
        raise UserError(
            f"{passed.FIELD}.speculative_config: on a CPU this model's recurrent layers cannot set "
            "their state back to before a refused draft; remove it"
        )


def adapter_arguments(lora: Lora) -> dict[str, Any]:
    """vLLM's arguments for one adapter, on the layers that the trainer adapts and no others."""
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": lora.engine_rank,
        "lora_target_modules": list(lora.layers),
    }


def served_config(config: Any, *, wide_head: bool, stored_weights: bool = False) -> Any:
    """vLLM's `hf_overrides`; for a model of TEXT_MODELS the config of its text part.

    wide_head: products of the head are float32. stored_weights: vLLM reads the model's files
    itself.
    """
    # The trainer publishes the weights of a quantised file as the numbers that they stand for.
    if not stored_weights and hasattr(config, "quantization_config"):
        del config.quantization_config
    # vLLM would serve the whole model, but the trainer has weights of its text part only.
    if config.model_type in TEXT_MODELS:
        config = text_part(config)
    if wide_head:
        config.head_dtype = "float32"
    return config


def passed_arguments(settings: passed.EngineArguments) -> dict[str, Any]:
    """The settings of generator.engine that are set.

    Raises UserError if this vLLM does not know one of them.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    # Those that differ from their defaults, because resolved run files contain the defaults too.
    changed_settings = settings.model_dump(mode="json", exclude_defaults=True)
    vllm_arguments = {field.name for field in fields(AsyncEngineArgs)}
    for name in changed_settings:
        if name not in vllm_arguments:
            raise UserError(
                f"{passed.FIELD}.{name}: the installed vLLM has no such engine argument; remove it"
            )
    return changed_settings


def check_routing(
    routing: RoutingShape, recipe: Recipe, max_length: int, quantization: str | None
) -> None:
    """Raise UserError if the run file has settings for experts that this model does not support."""
    if recipe.router_replay:
        _check_replay(routing, recipe.most_rollouts_per_prompt, max_length)
    if quantization is not None and routing.layers:
        raise UserError(
            f"{passed.FIELD}.quantization = {quantization!r}: updates of quantised experts have "
            "not been validated; leave it out for a mixture of experts"
        )


def _check_replay(routing: RoutingShape, rollouts: int, max_length: int) -> None:
    """Raise UserError if a group of `rollouts` rollouts, each `max_length` tokens long, exceeds a
    wire message.
    """
    # A choice of an expert travels as one byte.
    max_experts_per_layer = 256
    if routing.experts > max_experts_per_layer:
        raise UserError(
            f"recipe.router_replay = true: a layer has {routing.experts} experts, and a choice is "
            f"one byte on the wire, enough for {max_experts_per_layer}; set it to false"
        )
    # Upper limit of a token's bytes on the wire without its experts
    group = rollouts * max_length * (len(routing.layers) * routing.choices + 12)
    if group > MAX_MESSAGE_BYTES:
        raise UserError(
            f"recipe.router_replay = true: {rollouts} rollouts of model.max_length {max_length} "
            f"take {group >> 20} MiB with their experts, and a group may take "
            f"{MAX_MESSAGE_BYTES >> 20}; shorten model.max_length, lower "
            "recipe.rollouts_per_prompt, or set it to false"
        )


def import_vllm() -> None:
    # Not part of `start_llm`: tracebacks of failed optional imports keep its frames, which would
    # keep the engine.
    with pause_garbage_collection():
        import vllm.v1.engine.async_llm  # noqa: F401


def start_llm(arguments: dict[str, Any], load_format: str) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments, load_format=load_format))
