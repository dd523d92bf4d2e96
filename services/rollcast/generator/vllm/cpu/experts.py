"""Mixtures of experts on CPU, where vLLM neither loads new weights in place nor returns the
routers' choices.

vLLM replaces the weights of experts by a packed form for its CPU kernel, into which a new version
cannot be loaded. So the packed copy exists next to the plain weights, and is packed again. The
kernels chosen for GPUs (`engine_start`) read the weights as they are loaded. With adapters anywhere
in the model vLLM leaves experts to Triton, although `model.lora` gives experts none.

vLLM records the choices at its routers, keeps them by KV block, so that a prefix hit has them too,
and returns them with a request's tokens (`CompletionOutput.routed_experts`). Only its second model
runner does this. That runner consists of Triton kernels, and the published Triton has no CPU
backend. The recording does not depend on the runner, so here the first one gets it as well.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

PACKED = "rollcast_packed"
EXPERTS = "rollcast_experts"


@functools.cache
def keep_experts_plain() -> None:
    """Let vLLM's CPU experts pack a stand-in of their layer, and compute with that."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    pack = CPUUnquantizedExperts.process_weights_after_loading
    apply = CPUUnquantizedExperts.apply

    def pack_stand_in(experts: Any, layer: torch.nn.Module) -> None:
        stand_in = torch.nn.Module()
        for name, parameter in layer.named_parameters(recurse=False):
            stand_in.register_parameter(name, parameter)
        # vLLM replaces the parameters of the module that it packs: those of the layer stay plain.
        pack(experts, stand_in)
        setattr(experts, PACKED, stand_in)
        setattr(layer, EXPERTS, experts)

    def apply_packed(experts: Any, **arguments: Any) -> Any:
        packed = getattr(experts, PACKED)
        return apply(experts, **(arguments | {"w1": packed.w13_weight, "w2": packed.w2_weight}))

    CPUUnquantizedExperts.process_weights_after_loading = pack_stand_in
    CPUUnquantizedExperts.apply = apply_packed


def pack_again(model: torch.nn.Module) -> None:
    """Call it after every load in place. Does nothing if no experts were packed."""
    for layer in model.modules():
        experts = getattr(layer, EXPERTS, None)
        if experts is not None:
            experts.process_weights_after_loading(layer)


@functools.cache
def compute_without_adapters() -> None:
    """Let the experts of a model with adapters elsewhere compute as those
    of a model without any.
    """
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig

    complete = FusedMoEConfig.__post_init__

    def without_adapters(config: Any) -> None:
        config.is_lora_enabled = False
        complete(config)

    FusedMoEConfig.__post_init__ = without_adapters


@functools.cache
def choose_by_sigmoid() -> None:
    """Let vLLM's CPU router choose by sigmoid and bias among all experts (MiniMax-M2).

    It knows that formula for groups of experts only, and all experts together are one group.
    """
    from vllm.model_executor.layers.fused_moe.router.cpu_router import CPURouter

    make = CPURouter.__init__

    def initialize(router: Any, *arguments: Any, **keywords: Any) -> None:
        make(router, *arguments, **keywords)
        if (
            router.scoring_func == "sigmoid"
            and not router.use_grouped_topk
            and router.custom_routing_function is None
        ):
            router.use_grouped_topk = True
            router.num_expert_group = 1
            router.topk_group = 1

    CPURouter.__init__ = initialize


class _StepBatch(NamedTuple):
    """The fields of a step's batch that vLLM's connector reads."""

    req_ids: list[str]
    num_computed_tokens_np: NDArray[np.int32]
    query_start_loc_np: NDArray[np.int32]


@functools.cache
def return_from_first_runner() -> None:
    """Let the first model runner on CPU return the choices; changes nothing without
    `enable_return_routed_experts`.
    """
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
            runner.rollcast_experts = get_aux_output_connector(
                runner.model, runner.vllm_config, runner.kv_cache_config
            )

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
            # A copy, because the runner writes its counts in place.
            computed = batch.num_computed_tokens_cpu[:count].copy()
            runner.rollcast_pending = connector.prepare_output(
                _StepBatch(batch.req_ids[:count], computed, starts)
            )
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

    # vLLM's own check refuses the first model runner.
    def verify(config: Any) -> None:
        if config.aux_output_config.enabled and not config.model_config.is_moe:
            raise ValueError("recipe.router_replay is for mixtures of experts")

    VllmConfig._verify_aux_output_compatibility = verify
    CPUModelRunner.initialize_kv_cache = initialize_kv_cache
    CPUModelRunner.execute_model = execute_model
    CPUModelRunner.sample_tokens = sample_tokens
