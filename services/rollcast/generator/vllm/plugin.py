"""vLLM plug-in: keeps layers loadable in place on CPU, and the workers' rendezvous file in the engine's folder.

vLLM packs the weight of every linear layer into a oneDNN handle on CPU and empties the parameter, so that a new version
could not be loaded without rebuilding the layers. Plain `F.linear` is as fast for small models and loads as on CUDA.
For experts see `expert_packing` and `routed_experts`. The rendezvous file of an engine's workers would stay in the
temporary folder if the engine is killed, and its name does not identify its owner. `no_room` and `engine_failure`
record why an engine ends.
"""

import gc
import uuid

import torch

from rollcast.generator.vllm import engine_failure, no_room
from rollcast.generator.vllm.expert_packing import keep_experts_plain
from rollcast.generator.vllm.routed_experts import return_from_first_runner
from rollcast.telemetry.heavy_imports import collect_from_now


def register() -> None:
    """Entry point `vllm.general_plugins`; runs in every process of the engine, any number of times."""
    if not gc.isenabled():  # a child of `python -m rollcast.generator` turns it off in its first line
        collect_from_now()
    no_room.take_notes()
    engine_failure.take_notes()
    from vllm.platforms import current_platform
    from vllm.v1.executor import multiproc_executor, uniproc_executor

    multiproc_executor.get_file_store_init_method = _rendezvous_file
    uniproc_executor.get_file_store_init_method = _rendezvous_file
    if current_platform.is_cpu():
        from vllm.model_executor.layers import utils

        utils.dispatch_cpu_unquantized_gemm = _keep_plain_linear
        keep_experts_plain()
        return_from_first_runner()


def _keep_plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


def _rendezvous_file() -> str:
    """A file next to the engine's sockets."""
    from vllm import envs

    return f"file://{envs.VLLM_RPC_BASE_PATH}/vllm_dist_{uuid.uuid4().hex}"
