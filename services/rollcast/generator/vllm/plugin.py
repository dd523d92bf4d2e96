"""vLLM plug-in: keeps layers loadable in place on CPU, and the workers' rendezvous file in the
engine's folder.

`cpu` has the stand-ins for CPUs; `engine_failure` records why an engine ends.
"""

import gc
import uuid

from rollcast.generator.vllm.cpu import drafts, experts, latent_attention, recurrent
from rollcast.generator.vllm.cpu.linear import keep_linear_plain
from rollcast.generator.vllm.cpu.text_only import leave_out_torchvision
from rollcast.generator.vllm.engine_failure import take_notes
from rollcast.generator.vllm.held_outputs import hold_outputs
from rollcast.telemetry.heavy_imports import collect_from_now


def register() -> None:
    """Entry point `vllm.general_plugins`; runs in every process of the engine, any number
    of times.
    """
    # A child of `python -m rollcast.generator` turns it off in its first line.
    if not gc.isenabled():
        collect_from_now()
    take_notes()
    hold_outputs()
    from vllm.platforms import current_platform
    from vllm.v1.executor import multiproc_executor, uniproc_executor

    # In the temporary folder the file would stay if the engine is killed, and its name does not
    # identify its owner.
    multiproc_executor.get_file_store_init_method = _rendezvous_file
    uniproc_executor.get_file_store_init_method = _rendezvous_file
    if current_platform.is_cpu():
        keep_linear_plain()
        experts.keep_experts_plain()
        experts.compute_without_adapters()
        experts.choose_by_sigmoid()
        experts.return_from_first_runner()
        latent_attention.use_plain_kernels_on_cpu()
        recurrent.compute_recurrence_plainly()
        recurrent.split_prompts_at_states()
        recurrent.keep_what_was_drawn()
        drafts.repeat_settings_for_drafts()
        leave_out_torchvision()


def _rendezvous_file() -> str:
    """A file next to the engine's sockets."""
    from vllm import envs

    return f"file://{envs.VLLM_RPC_BASE_PATH}/vllm_dist_{uuid.uuid4().hex}"
