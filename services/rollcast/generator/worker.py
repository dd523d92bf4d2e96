"""What Rollcast adds to vLLM's worker: reception of weights, and sight of the engine's steps.

Called by `collective_rpc` between engine steps; the bytes of a version arrive on the receiver's own thread meanwhile.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Any

import torch

from rollcast.generator import plugin
from rollcast.generator.engine_folder import end_with_generator
from rollcast.generator.expert_packing import pack_again
from rollcast.generator.steps import EngineCounts, KvRebuild, StepObserver
from rollcast.weights.receive_state import ReceiveState
from rollcast.weights.receiver import Receiver

plugin.register()


class GeneratorWorker:
    """Mixed into vLLM's worker class (worker_extension_cls)."""

    model_runner: Any
    device: torch.device
    rank: int

    def prepare_for_rollcast(self, cpu: int | None) -> None:
        """Count steps from now on; pin the engine to a core.

        Ctrl-C is the front end's, which drains and then ends us; if it is killed, and its warden too, we end ourselves.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_generator()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        self.receiver = Receiver(device=self.device)
        self.step_observer = StepObserver()
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
        self.receiver.join(join, self.rank)

    def begin_receive(self, publish: bytes) -> None:
        self.receiver.receive(publish)

    def poll_receiver(self) -> ReceiveState:
        return self.receiver.poll()

    def apply_received(self) -> tuple[list[str], float, float]:
        """Load the staged version, under the engine's pause.

        Returns the requests that are decoding, when the last step ended (monotonic seconds of this machine), and how
        many seconds copying the parameters into the model took.
        """
        started = time.monotonic()
        self.receiver.apply(self._load_complete)
        return self.step_observer.decoding(), self.step_observer.last_step_at, time.monotonic() - started

    def skip_received(self) -> None:
        self.receiver.skip()

    def abandon_received(self) -> None:
        self.receiver.abandon()

    def _load_complete(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        model = self.model_runner.model
        loaded = model.load_weights(tensors)
        pack_again(model)
        missing = {name for name, _ in model.named_parameters()} - set(loaded)
        if missing:
            raise RuntimeError(f"the trainer's version lacks weights of this model: {', '.join(sorted(missing)[:5])}")
