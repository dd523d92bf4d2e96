"""The engine for wire 2: it receives in the background, pauses to apply, and restarts what a new
trainer lost.
"""

import math
import uuid
from collections.abc import Sequence

from rollcast.generator.claims import ClaimLoop
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.steps import EngineCounts
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.receiver.weight_engine import ReceiverVerb, ReceiveState, merge_states
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion, Surviving, survives

log = get_logger()


def new_owner(name: str) -> str:
    """A name that no process of this run has had, so that the trainer distinguishes a restarted
    generator.
    """
    return f"{name}-{uuid.uuid4().hex[:8]}"


class DecodeRate:
    """Tokens per second of one rollout while it decodes, exponentially smoothed over 10 s of
    decoding.

    Time without decoding (idle, prefill alone) does not change it.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def update(self, tokens: float, seconds: float) -> float:
        """Update with what was decoded since the last call; returns tokens per second, 0 = unknown
        so far.
        """
        # 10.0: seconds of decoding over which the rate is smoothed; chosen, not measured.
        decay = math.exp(-seconds / 10.0)
        self._tokens = decay * self._tokens + tokens
        self._seconds = decay * self._seconds + seconds
        # Fewer tokens give no rate, because the first steps of an engine are slow
        return self._tokens / self._seconds if self._tokens >= 8 and self._seconds else 0.0


class GeneratorWeights:
    """Implements `rollcast.weights.receiver.weight_engine.WeightEngine`."""

    def __init__(self, name: str, engine: Engine, claims: ClaimLoop, exporter: Exporter) -> None:
        self._name = name
        self._engine = engine
        self._claims = claims
        self._exporter = exporter
        self._reported = EngineCounts.zero()
        self._decode_rate = DecodeRate()
        self._staged_path = ""
        """The path under which the engine's workers find the staged version, if they share it."""

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        answers = await self._engine.call("call_receiver", verb, *message)
        state = merge_states([ReceiveState(*answer) for answer in answers if answer is not None])
        self._staged_path = state.path
        return state

    async def apply(self, version: PolicyVersion) -> float:
        """Returns once every claim under older weights is recorded, on which the staleness gate
        relies.
        """
        pause_seconds = await self._engine.update(version, "apply", self._staged_path)
        self._exporter.observe(generator_metrics.WEIGHT_LOAD_SECONDS, self._engine.load_seconds)
        await self._claims.wait_until_recorded()
        return pause_seconds

    async def heartbeat(self) -> weights_pb2.Heartbeat:
        await self._engine.observe()
        former_counts = self._reported
        counts = self._reported = self._engine.counts
        rate = self._decode_rate.update(
            counts.decode_tokens - former_counts.decode_tokens,
            counts.decode_seconds - former_counts.decode_seconds,
        )
        self._exporter.add(
            generator_metrics.PREEMPTIONS, counts.preemptions - former_counts.preemptions
        )
        self._exporter.add(
            generator_metrics.SAMPLED_TOKENS, counts.sampled_tokens - former_counts.sampled_tokens
        )
        self._exporter.add(
            generator_metrics.DRAFTED_TOKENS, counts.drafted_tokens - former_counts.drafted_tokens
        )
        self._exporter.add(
            generator_metrics.ACCEPTED_TOKENS,
            counts.accepted_tokens - former_counts.accepted_tokens,
        )
        self._exporter.set(generator_metrics.INFLIGHT_TOKENS, counts.inflight_tokens)
        return weights_pb2.Heartbeat(
            engine_steps=counts.steps,
            running_rollouts=self._engine.num_running,
            decode_tokens_per_second=rate,
            draining=self._claims.draining,
        )

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        """If the engine's weights are lost too, nothing is sampled until the new trainer's first
        version arrives.
        """

        def is_lost(version: PolicyVersion) -> bool:
            return not survives(version, incarnation, history)

        if self._engine.version is not None and is_lost(self._engine.version):
            await self._engine.withdraw()
        restarted = await self._claims.restart_lost(is_lost)
        log.info(
            "trainer's surviving history is known",
            incarnation=incarnation,
            restarted_rollouts=restarted,
        )

    async def hand_over(self, sequences: Sequence[int]) -> None:
        log.info(
            "handing over tasks that a faster generator can finish in time", tasks=len(sequences)
        )
        self._claims.hand_over(sequences)

    async def change_owner(self, reason: str) -> str:
        owner = new_owner(self._name)
        log.warning("fenced: coming back under a new name", reason=reason, owner=owner)
        await self._claims.change_owner(owner)
        return owner
