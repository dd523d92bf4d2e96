"""vLLM plug-in: keeps layers loadable in place on CPU, and the workers' rendezvous file in the
engine's folder.

For experts see `experts_on_cpu`; `engine_failure` records why an engine ends.
"""

import gc
import uuid

import torch

from rollcast.generator.vllm.engine_failure import take_notes
from rollcast.generator.vllm.experts_on_cpu import (
    choose_by_sigmoid,
    compute_without_adapters,
    keep_experts_plain,
    return_from_first_runner,
)
from rollcast.generator.vllm.latent_attention import use_plain_kernels_on_cpu
from rollcast.generator.vllm.recurrent_on_cpu import (
    compute_recurrence_plainly,
    keep_what_was_drawn,
    split_prompts_at_states,
)
from rollcast.generator.vllm.text_only_on_cpu import leave_out_torchvision
from rollcast.telemetry.heavy_imports import collect_from_now


def register() -> None:
    """Entry point `vllm.general_plugins`; runs in every process of the engine, any number
    of times.
    """
    # A child of `python -m rollcast.generator` turns it off in its first line.
    if not gc.isenabled():
        collect_from_now()
    take_notes()
    from vllm.platforms import current_platform
    from vllm.v1.executor import multiproc_executor, uniproc_executor

    # In the temporary folder the file would stay if the engine is killed, and its name does not
    # identify its owner.
    multiproc_executor.get_file_store_init_method = _rendezvous_file
    uniproc_executor.get_file_store_init_method = _rendezvous_file
    if current_platform.is_cpu():
        from vllm.model_executor.layers import utils

        # vLLM packs the weight of every linear layer into a oneDNN handle on CPU and empties the
        # parameter, so that a new version could not be loaded in place. Plain `F.linear` is as fast
        # for small models.
        utils.dispatch_cpu_unquantized_gemm = _keep_plain_linear
        keep_experts_plain()
        compute_without_adapters()
        choose_by_sigmoid()
        use_plain_kernels_on_cpu()
        return_from_first_runner()
        compute_recurrence_plainly()
        split_prompts_at_states()
        keep_what_was_drawn()
        leave_out_torchvision()


def _keep_plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


def _rendezvous_file() -> str:
    """A file next to the engine's sockets."""
    from vllm import envs

    return f"file://{envs.VLLM_RPC_BASE_PATH}/vllm_dist_{uuid.uuid4().hex}"
