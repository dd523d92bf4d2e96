"""The experts that the routers choose: which layers have routers, and how the choices come back on CPU.

vLLM records the choices at its routers, keeps them by KV block, so that a prefix hit has them too, and returns them
with a request's tokens (`CompletionOutput.routed_experts`). Only its second model runner does this. That runner
consists of Triton kernels, and the published Triton has no CPU backend. The recording does not depend on the runner, so
here the first one gets it as well.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rollcast.generator.vllm.routing_shape import RoutingShape


def routing_shape(runner: Any) -> RoutingShape:
    """The routing shape of a vLLM model runner's model."""
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

    layers = sorted(module.layer_id for module in runner.model.modules() if isinstance(module, MoERunner))
    config = runner.vllm_config.model_config
    if not layers:
        return RoutingShape([], 0, 0)
    return RoutingShape(layers, config.get_num_experts(), config.get_num_experts_per_tok())


class _StepBatch(NamedTuple):
    """The fields of a step's batch that vLLM's connector reads."""

    req_ids: list[str]
    num_computed_tokens_np: NDArray[np.int32]
    query_start_loc_np: NDArray[np.int32]


@functools.cache
def return_from_first_runner() -> None:
    """Let the first model runner on CPU return the choices; changes nothing without `enable_return_routed_experts`."""
    from vllm.config import VllmConfig
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    prepare = CPUModelRunner.initialize_kv_cache
    execute = CPUModelRunner.execute_model
    sample = CPUModelRunner.sample_tokens

    def initialize_kv_cache(runner: Any, *arguments: Any, **keywords: Any) -> None:
        from vllm.distributed.aux_output_connector.worker import get_aux_output_connector

        prepare(runner, *arguments, **keywords)
        runner.rollcast_experts = None
        if runner.vllm_config.aux_output_config.enabled:
            runner.rollcast_experts = get_aux_output_connector(runner.model, runner.vllm_config, runner.kv_cache_config)

    @torch.inference_mode()
    def execute_model(runner: Any, scheduled: Any, *arguments: Any, **keywords: Any) -> Any:
        connector = runner.rollcast_experts
        if connector is None:
            return execute(runner, scheduled, *arguments, **keywords)
        connector.begin_step(scheduled.aux_output_connector_metadata)
        result = execute(runner, scheduled, *arguments, **keywords)
        if scheduled.total_num_scheduled_tokens:
            batch = runner.input_batch
            count = batch.num_reqs
            tokens = [scheduled.num_scheduled_tokens[request] for request in batch.req_ids[:count]]
            starts = np.cumsum([0, *tokens], dtype=np.int32)
            computed = batch.num_computed_tokens_cpu[:count].copy()
            runner.rollcast_pending = connector.prepare_output(_StepBatch(batch.req_ids[:count], computed, starts))
        return result

    @torch.inference_mode()
    def sample_tokens(runner: Any, *arguments: Any, **keywords: Any) -> Any:
        output = sample(runner, *arguments, **keywords)
        if runner.rollcast_experts is not None and runner.rollcast_pending is not None:
            sampled = np.array([len(tokens) for tokens in output.sampled_token_ids], dtype=np.int32)
            # No token was rejected, because there is no speculative decoding.
            runner.rollcast_pending.enqueue_cpu_copy(sampled, np.zeros_like(sampled))
            output.aux_output_connector_output = runner.rollcast_pending.process_output()
        return output

    def verify(config: Any) -> None:
        if config.aux_output_config.enabled and not config.model_config.is_moe:
            raise ValueError("recipe.router_replay is for mixtures of experts")

    VllmConfig._verify_aux_output_compatibility = verify
    CPUModelRunner.initialize_kv_cache = initialize_kv_cache
    CPUModelRunner.execute_model = execute_model
    CPUModelRunner.sample_tokens = sample_tokens
