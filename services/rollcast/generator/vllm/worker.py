"""Rollcast's additions to vLLM's worker: reception of weights and observation of the engine's
steps.

Called by `collective_rpc` between engine steps. The bytes of a version arrive on the receiver's own
threads.

    stage on the device     every worker has a receiver; each loads from its own memory
    stage on the host       worker 0 has the receiver; all load from the memory that it shares
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import astuple
from typing import Any

import torch

from rollcast.connections.object_files import ObjectFolder
from rollcast.generator.vllm import plugin
from rollcast.generator.vllm.adapter import PolicyAdapter
from rollcast.generator.vllm.cpu.experts import pack_again
from rollcast.generator.vllm.draft_weights import read_weights_of_drafting_model
from rollcast.generator.vllm.engine_folder import end_with_generator
from rollcast.generator.vllm.engine_start import RoutingShape, has_gpus
from rollcast.generator.vllm.expert_stacks import load_stacks_whole
from rollcast.generator.vllm.latent_attention import derive_again
from rollcast.generator.vllm.steps import KvRebuild, StepObserver
from rollcast.runfolder.files import parse_location
from rollcast.weights.receiver.host_memory import SharedVersion, in_host_memory
from rollcast.weights.receiver.queued_copies import QueuedCopies
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.weight_engine import ReceiverVerb, ReceiveState

plugin.register()
if not has_gpus():
    # torch reads the variable only when it is imported, possibly before it was set.
    # `set_num_threads` works here, because vLLM has not bound its threads yet; afterwards it is
    # ignored.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
read_weights_of_drafting_model()


class GeneratorWorker:
    """Mixed into vLLM's worker class (worker_extension_cls)."""

    model_runner: Any
    device: torch.device
    rank: int
    adapter: PolicyAdapter | None = None
    """Versions are adapters (`model.lora`); None = they are whole weights."""

    def use_adapter(self, rank: int, alpha: int) -> None:
        """Versions will be adapters. Called before the first request."""
        self.adapter = PolicyAdapter(self.model_runner, self.device, rank, alpha)

    def room_for_staging(self) -> tuple[int | None, int]:
        """Free bytes on this worker's device, None if the device is the host; bytes of its part of
        a version.
        """
        if self.adapter is not None:
            version_bytes = self.adapter.num_bytes
        else:
            version_bytes = sum(
                parameter.nbytes for parameter in self.model_runner.model.parameters()
            )
        return (
            torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else None
        ), version_bytes

    def full_rollouts(self) -> int:
        """How many rollouts of model.max_length fit into this worker's KV cache together."""
        from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

        cache = self.model_runner.kv_cache_config
        # vLLM keeps one block for itself.
        used = 1 - 1 / cache.num_blocks
        return int(
            get_max_concurrency_for_kv_cache_config(self.model_runner.vllm_config, cache) * used
        )

    def num_threads(self) -> int:
        """CPU threads that torch uses for one operation in this worker."""
        return torch.get_num_threads()

    def routing_shape(self) -> RoutingShape:
        """The expert choices of one token of this model; no layers if it has no routers."""
        from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

        modules = self.model_runner.model.modules()
        layers = sorted(module.layer_id for module in modules if isinstance(module, MoERunner))
        if not layers:
            return RoutingShape([], 0, 0)
        config = self.model_runner.vllm_config.model_config
        return RoutingShape(layers, config.get_num_experts(), config.get_num_experts_per_tok())

    def prepare_for_rollcast(self, cpu: int | None, stage: str, store: str | None) -> None:
        """Start to count steps, pin the engine to a core, make the receiver.

        `store`: where versions are pulled from; None = they come over lanes.
        """
        from vllm.v1.kv_cache_interface import MambaSpec

        # Ctrl-C goes to the front end, which drains, then ends us. If it and its warden are killed,
        # we end ourselves.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_generator()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu + self.rank})
        self.receiver: Receiver | None = None
        if stage == "device":
            self.receiver = Receiver(device=self.device, worker=self.rank)
        elif self.rank == 0:
            self.receiver = Receiver(
                device=self.device,
                make_memory=in_host_memory,
                store=None if store is None else ObjectFolder(parse_location(store)),
            )
        self.shared = SharedVersion()
        load_stacks_whole(self.model_runner.model)
        layers = [
            group.kv_cache_spec for group in self.model_runner.kv_cache_config.kv_cache_groups
        ]
        recurrent = [index for index, spec in enumerate(layers) if isinstance(spec, MambaSpec)]
        self.step_observer = StepObserver([spec.block_size for spec in layers], recurrent)
        run = self.model_runner.execute_model

        # Before the step the scheduler's output is complete, and the requests' blocks are not
        # filled yet.
        def execute_and_observe(scheduled: Any, *arguments: Any, **keywords: Any) -> Any:
            self.step_observer.observe(scheduled)
            result = run(scheduled, *arguments, **keywords)
            self.step_observer.step_ended(time.monotonic())
            return result

        self.model_runner.execute_model = execute_and_observe
        if self.model_runner.vllm_config.speculative_config is not None:
            self._observe_sampled()

    def _observe_sampled(self) -> None:
        """Report to the observer how many drafts were accepted, which the scheduler's output does
        not have.
        """
        from vllm.v1.outputs import AsyncModelRunnerOutput

        sample = self.model_runner.sample_tokens

        def sample_and_observe(*arguments: Any, **keywords: Any) -> Any:
            output = sample(*arguments, **keywords)
            # vLLM's second model runner returns it while it is copied from the GPU.
            if isinstance(output, AsyncModelRunnerOutput):
                output = output.get_output()
            self.step_observer.take_in_sampled(
                dict(zip(output.req_ids, map(len, output.sampled_token_ids), strict=True))
            )
            return output

        self.model_runner.sample_tokens = sample_and_observe

    def take_observations(self) -> tuple[tuple[Any, ...], list[KvRebuild]]:
        """The fields of `EngineCounts` since the start, KV rebuilds since the last call."""
        # As a tuple: vLLM's messages between processes have no classes.
        return astuple(self.step_observer.take_counts()), self.step_observer.take_rebuilds()

    def call_receiver(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState | None:
        """Call this method of the worker's receiver.

        Returns the receiver's state after the call; None = another worker receives for this one.
        """
        if self.receiver is not None:
            getattr(self.receiver, verb)(*message)
            return self.receiver.poll()
        if verb == "receive":
            self.shared.announce(*message)
        return None

    def apply(self, path: str) -> tuple[list[str], float, float]:
        """Load the staged version, under the engine's pause. `path`: `ReceiveState.path`.

        Returns the requests that are decoding, when the last step ended (monotonic seconds of this
        machine), and how many seconds copying the parameters into the model took.
        """
        started_at = time.monotonic()
        if self.receiver is not None:
            self.receiver.apply(self._load_complete)
        else:
            with torch.no_grad():
                self._load_complete(self.shared.views(path))
            # The pause ends when the copies have run, not when they are queued.
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
        return (
            self.step_observer.decoding(),
            self.step_observer.last_step_at,
            time.monotonic() - started_at,
        )

    def _load_complete(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        if self.adapter is not None:
            self.adapter.load(tensors)
            self.step_observer.weights_changed()
            return
        model = self.model_runner.model
        if self.model_runner.vllm_config.model_config.quantization is not None:
            loaded = self._load_quantised(tensors)
        else:
            # On a CPU there is nothing to queue.
            with QueuedCopies(self.device) if self.device.type == "cuda" else nullcontext():
                loaded = model.load_weights(tensors)
        # On CPU experts compute with packed copies of their weights.
        pack_again(model)
        derived = derive_again(model, self.model_runner.vllm_config.model_config.dtype)
        self.step_observer.weights_changed()
        # vLLM does not notice a missing weight: its layer would keep the former one.
        missing_names = {name for name, _ in model.named_parameters()} - set(loaded) - derived
        if missing_names:
            raise RuntimeError(
                "the trainer's version lacks weights of this model: "
                f"{', '.join(sorted(missing_names)[:5])}"
            )

    def _load_quantised(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """vLLM quantises each layer of the received weights again, in its place, and counts its
        copies itself.
        """
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        model = self.model_runner.model
        names = {name for name, _ in model.named_parameters()}
        initialize_layerwise_reload(model)
        loaded: set[str] = model.load_weights(tensors)
        finalize_layerwise_reload(model, self.model_runner.vllm_config.model_config)
        # vLLM computes the scales from the weights: the trainer sends none.
        scales = {name for name, _ in model.named_parameters() if name.endswith("_scale")}
        return loaded | (scales & names)
