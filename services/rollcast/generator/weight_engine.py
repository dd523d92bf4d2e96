"""The engine as wire 2 sees it: receives in the background, pauses to apply, restarts what a new trainer lost."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence

from rollcast.generator.claims import ClaimLoop
from rollcast.generator.vllm.engine import Engine
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.receiver.member import EngineHeartbeat, Surviving
from rollcast.weights.receiver.receive_state import ReceiveState, merge_states
from rollcast.weights.receiver.weight_engine import survives
from rollcast.wire.version import PolicyVersion

SMOOTHING_SECONDS = 10.0
MIN_TOKENS = 8
"""Fewer say little: the first steps of an engine are slow."""

log = get_logger()


def new_owner(name: str) -> str:
    """A name that no process of this run had before: the trainer tells a restarted generator from its former self."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class DecodeRate:
    """Tokens per second of one rollout while it decodes: the last SMOOTHING_SECONDS of decoding count most.

    Time in which nothing decodes (idle, prefill alone) is no part of it: it changes nothing, and is not forgotten over.
    """

    def __init__(self) -> None:
        self._seen = (0, 0.0)
        self._tokens = 0.0
        self._seconds = 0.0

    def update(self, decode_steps: int, decode_seconds: float) -> float:
        """Take in the engine's counts since its start; returns tokens per second, 0 = unknown as yet."""
        tokens, seconds = decode_steps - self._seen[0], decode_seconds - self._seen[1]
        self._seen = (decode_steps, decode_seconds)
        kept = math.exp(-seconds / SMOOTHING_SECONDS)
        self._tokens = kept * self._tokens + tokens
        self._seconds = kept * self._seconds + seconds
        return self._tokens / self._seconds if self._tokens >= MIN_TOKENS and self._seconds else 0.0


class GeneratorWeights:
    """Implements rollcast.weights.receiver.member.WeightEngine."""

    def __init__(self, name: str, engine: Engine, claims: ClaimLoop, exporter: Exporter) -> None:
        self._name = name
        self._engine = engine
        self._claims = claims
        self._exporter = exporter
        self._preemptions = 0
        self._sampled_tokens = 0
        self._decode_rate = DecodeRate()
        self._shared = ""
        """Where the engine's workers find what one of them has staged for all."""

    async def begin_join(self, join: bytes) -> None:
        await self._engine.call("begin_join", join)

    async def begin_receive(self, publish: bytes) -> None:
        await self._engine.call("begin_receive", publish)

    async def poll(self) -> ReceiveState:
        answers = [answer for answer in await self._engine.call("poll_receiver") if answer is not None]
        self._shared = answers[0][1]
        return merge_states([ReceiveState(*state) for state, _ in answers])

    async def apply(self, version: PolicyVersion) -> float:
        """Returns once every claim that was promised older weights is on record: the staleness gate relies on it."""
        pause_seconds = await self._engine.update(version, "apply_received", self._shared)
        self._exporter.observe(names.WEIGHT_LOAD_SECONDS, self._engine.load_seconds)
        await self._claims.recorded()
        return pause_seconds

    async def skip(self) -> None:
        await self._engine.call("skip_received")

    async def abandon(self) -> None:
        await self._engine.call("abandon_received")

    async def heartbeat(self) -> EngineHeartbeat:
        await self._engine.observe()
        counts = self._engine.counts
        self._exporter.add(names.PREEMPTIONS, counts.preemptions - self._preemptions)
        self._preemptions = counts.preemptions
        self._exporter.add(names.SAMPLED_TOKENS, counts.sampled_tokens - self._sampled_tokens)
        self._sampled_tokens = counts.sampled_tokens
        self._exporter.set(names.INFLIGHT_TOKENS, counts.inflight_tokens)
        return EngineHeartbeat(
            engine_steps=counts.steps,
            running_rollouts=self._engine.num_running,
            decode_tokens_per_second=self._decode_rate.update(counts.decode_steps, counts.decode_seconds),
            draining=self._claims.draining,
        )

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        """Where the held weights are lost too, nothing is sampled until the new trainer's first version came."""

        def lost(version: PolicyVersion) -> bool:
            return not survives(version, incarnation, history)

        if self._engine.version is not None and lost(self._engine.version):
            await self._engine.withdraw()
        restarted = await self._claims.restart_lost(lost)
        log.info("trainer's surviving history is known", incarnation=incarnation, restarted_rollouts=restarted)

    async def hand_over(self, sequences: Sequence[int]) -> None:
        log.info("handing over what a faster generator can finish in time", tasks=len(sequences))
        self._claims.hand_over(sequences)

    async def fenced(self, reason: str) -> str:
        owner = new_owner(self._name)
        log.warning("fenced: coming back under a new name", reason=reason, owner=owner)
        await self._claims.fenced(owner)
        return owner
