"""What Rollcast adds to vLLM's worker: reception of weights, and sight of the engine's steps.

Called by `collective_rpc` between engine steps; the bytes of a version arrive on the receiver's own threads meanwhile.

    stage on the device     every worker has a receiver; each loads from its own memory
    stage on the host       worker 0 has the receiver; all load from the memory that it shares
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Any

import torch
from google.protobuf.message import DecodeError

from rollcast.generator.vllm import plugin
from rollcast.generator.vllm.engine_folder import end_with_generator
from rollcast.generator.vllm.engine_start import has_gpus
from rollcast.generator.vllm.expert_packing import pack_again
from rollcast.generator.vllm.routed_experts import routing_shape
from rollcast.generator.vllm.routing_shape import RoutingShape
from rollcast.generator.vllm.steps import EngineCounts, KvRebuild, StepObserver
from rollcast.weights.plan.manifest import BucketSpec, ManifestError, manifest_from_proto
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.host_memory import HostMemory, attach, identity
from rollcast.weights.receiver.receive_state import ReceiveState
from rollcast.weights.receiver.receiver import Receiver
from rollcast.wire import weights_pb2

plugin.register()
if not has_gpus():
    # torch reads the variable only when it is imported, which may have been before it was set. Here vLLM has not yet
    # bound its threads: from then on it ignores `set_num_threads`.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


class GeneratorWorker:
    """Mixed into vLLM's worker class (worker_extension_cls)."""

    model_runner: Any
    device: torch.device
    rank: int

    def room_for_staging(self) -> tuple[int | None, int]:
        """Bytes that are free on this worker's device, None where it is the host; bytes of the worker's weights."""
        held = sum(parameter.nbytes for parameter in self.model_runner.model.parameters())
        return (torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else None), held

    def full_rollouts(self) -> int:
        """How many rollouts of model.max_length this worker's KV cache holds at once."""
        from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

        cache = self.model_runner.kv_cache_config
        used = 1 - 1 / cache.num_blocks  # vLLM keeps one block for itself
        return int(get_max_concurrency_for_kv_cache_config(self.model_runner.vllm_config, cache) * used)

    def num_threads(self) -> int:
        """CPU threads that torch uses for one operation in this worker."""
        return torch.get_num_threads()

    def routing_shape(self) -> RoutingShape:
        return routing_shape(self.model_runner)

    def prepare_for_rollcast(self, cpu: int | None, stage: str) -> None:
        """Count steps from now on; pin the engine to a core; make what receives.

        Ctrl-C is the front end's, which drains and then ends us; if it is killed, and its warden too, we end ourselves.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_generator()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu + self.rank})
        memory = HostMemory() if stage == "host" else None
        self.receiver = None if stage == "host" and self.rank > 0 else Receiver(device=self.device, memory=memory)
        self.attached: Snapshot | None = None
        self.attached_identity = 0
        self.announced: tuple[BucketSpec, ...] = ()
        groups = self.model_runner.kv_cache_config.kv_cache_groups
        self.step_observer = StepObserver([group.kv_cache_spec.block_size for group in groups])
        run = self.model_runner.execute_model

        def observed(scheduled: Any, *arguments: Any, **keywords: Any) -> Any:
            self.step_observer.observe(scheduled)
            result = run(scheduled, *arguments, **keywords)
            self.step_observer.step_ended(time.monotonic())
            return result

        self.model_runner.execute_model = observed

    def take_observations(self) -> tuple[EngineCounts, list[KvRebuild]]:
        """Counts since the start, KV rebuilds since the last call."""
        observer = self.step_observer
        counts = EngineCounts(
            observer.num_steps,
            observer.num_preemptions,
            observer.num_decode_steps,
            observer.decode_seconds,
            observer.num_sampled_tokens,
            observer.num_inflight_tokens,
        )
        return counts, observer.take_rebuilds()

    def begin_join(self, join: bytes) -> None:
        if self.receiver is not None:
            self.receiver.join(join, self.rank)

    def begin_receive(self, publish: bytes) -> None:
        if self.receiver is not None:
            self.receiver.receive(publish)
            return
        try:  # now, and not in the pause
            self.announced = manifest_from_proto(weights_pb2.Publish.FromString(publish).manifest).buckets
        except (DecodeError, ManifestError):  # the worker that receives says so, and nothing is applied
            self.announced = ()

    def poll_receiver(self) -> tuple[ReceiveState, str] | None:
        """What it does, and where the others find what it has staged; None = another worker receives for this one."""
        if self.receiver is None:
            return None
        return self.receiver.poll(), self.receiver.path

    def apply_received(self, shared: str) -> tuple[list[str], float, float]:
        """Load the staged version, under the engine's pause. `shared`: what `poll_receiver` said.

        Returns the requests that are decoding, when the last step ended (monotonic seconds of this machine), and how
        many seconds copying the parameters into the model took.
        """
        started = time.monotonic()
        if self.receiver is not None:
            self.receiver.apply(self._load_complete)
        else:
            self._load_shared(shared)
        return self.step_observer.decoding(), self.step_observer.last_step_at, time.monotonic() - started

    def skip_received(self) -> None:
        if self.receiver is not None:
            self.receiver.skip()

    def abandon_received(self) -> None:
        if self.receiver is not None:
            self.receiver.abandon()

    def _load_shared(self, path: str) -> None:
        """The manifest says what lies where. Memory is mapped anew only where the owner made new one."""
        specs, found = self.announced, identity(path)
        if self.attached is None or self.attached_identity != found or self.attached.specs != specs:
            self.attached, self.attached_identity = attach(path, specs), found
        with torch.no_grad():
            self._load_complete(self.attached.views())
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _load_complete(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        model = self.model_runner.model
        loaded = self._load_quantised(tensors) if self._is_quantised else model.load_weights(tensors)
        pack_again(model)
        self.step_observer.weights_changed()
        missing = {name for name, _ in model.named_parameters()} - set(loaded)
        if missing:
            raise RuntimeError(f"the trainer's version lacks weights of this model: {', '.join(sorted(missing)[:5])}")

    @property
    def _is_quantised(self) -> bool:
        return self.model_runner.vllm_config.model_config.quantization is not None

    def _load_quantised(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """What is computed with is not what came: vLLM quantises each layer anew, in its place."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        model = self.model_runner.model
        names = {name for name, _ in model.named_parameters()}
        initialize_layerwise_reload(model)
        loaded: set[str] = model.load_weights(tensors)
        finalize_layerwise_reload(model, self.model_runner.vllm_config.model_config)
        scales = {name for name, _ in model.named_parameters() if name.endswith("_scale")}
        return loaded | (scales & names)
