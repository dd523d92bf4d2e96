"""The engine's part of a membership: it joins groups, receives versions and applies them, one
command at a time.

Join     join    -> poll .. joined                              -> Joined
Publish  receive -> poll .. staged -> apply, or skip if held    -> Acknowledge
both             -> poll .. failed                              -> Failed: rank 0 makes a new epoch
                 -> a newer epoch was announced -> abandon      -> no answer: this epoch is over
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rollcast.config.connections import Weights
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import apply_seconds, num_pieces
from rollcast.weights.receiver.weight_engine import (
    FAILED,
    JOINED,
    STAGED,
    ReceiverVerb,
    ReceiveState,
    WeightEngine,
)
from rollcast.wire import rollout_pb2, weights_pb2
from rollcast.wire.version import PolicyVersion

Result = TypeVar("Result")

MAX_POLL_SECONDS = 0.025


class EngineStuckError(RuntimeError):
    """Applying weights failed or did not end: the engine's weights are unknown, the process must
    restart.
    """


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """The result of `work`. Raises TimeoutError."""
    # Not asyncio.wait_for: before Python 3.12 it drops a cancellation that comes in the same turn
    # of the loop.
    async with asyncio.timeout(seconds):
        return await work


@dataclass(eq=False)
class Reception:
    """The version that the engine holds, and the group that it is in."""

    _engine: WeightEngine
    _settings: Weights
    _exporter: Exporter
    _on_applied: Callable[[], None]
    """Called after `version` has changed."""

    def __post_init__(self) -> None:
        self.version: PolicyVersion | None = None
        """The version that the engine holds; None until the first apply."""
        self.joined = False
        """Whether a join succeeded and no join or reception has failed since."""
        self.newest_epoch = 0
        """The epoch of the newest Join of this session: commands of older ones are dropped."""
        self._applying: asyncio.Future[float] | None = None
        self._apply_seconds = self._settings.acknowledge_timeout_seconds

    @property
    def is_applying(self) -> bool:
        return self._applying is not None

    async def join(self, join: weights_pb2.Join) -> weights_pb2.FromGenerator | None:
        """Enter the groups of an epoch; returns the answer, None = a newer epoch was announced."""
        # The lanes end by themselves at the first of these; the second is for whoever comes last.
        timeout_seconds = join.opening_timeout_seconds + 2 * join.timeout_seconds
        state = await self._complete(
            "join", join.SerializeToString(), join.epoch, JOINED, timeout_seconds
        )
        if state is None:
            return None
        if state.status == FAILED:
            return self._failure_message(state)
        self.joined = True
        return weights_pb2.FromGenerator(joined=weights_pb2.Joined(epoch=join.epoch))

    async def receive(self, publish: weights_pb2.Publish) -> weights_pb2.FromGenerator | None:
        """Receive a version and apply it; returns the answer, None = a newer epoch was announced.

        Raises OutOfMemory, EngineStuckError.
        """
        sizes = [bucket.num_bytes for bucket in publish.manifest.buckets]
        timeout_seconds = (num_pieces(sizes) + 1) * self._settings.bucket_timeout_seconds
        return await self._receive_and_apply(publish, timeout_seconds)

    async def pull(self, publish: weights_pb2.Publish) -> weights_pb2.FromGenerator | None:
        """Pull a version from the store and apply it; returns the answer.

        Raises OutOfMemory, EngineStuckError.
        """
        version = PolicyVersion.from_proto(publish.manifest.version)
        if self.version is not None and version <= self.version:
            self.joined = True
            return _acknowledgement(publish, ReceiveState(), 0.0)
        return await self._receive_and_apply(publish, None)

    async def _receive_and_apply(
        self, publish: weights_pb2.Publish, timeout_seconds: float | None
    ) -> weights_pb2.FromGenerator | None:
        num_bytes = sum(bucket.num_bytes for bucket in publish.manifest.buckets)
        self._apply_seconds = apply_seconds(self._settings.acknowledge_timeout_seconds, num_bytes)
        # A pull may take long, since no other process waits for it, but it must go on.
        timeout_seconds = timeout_seconds or self._apply_seconds
        message = publish.SerializeToString()
        state = await self._complete("receive", message, publish.epoch, STAGED, timeout_seconds)
        if state is None:
            return None
        if state.no_room:
            raise OutOfMemory(state.reason)
        version = publish.manifest.version
        if state.status == FAILED:
            return self._failure_message(state, version)
        self._exporter.observe(generator_metrics.WEIGHT_RECEIVE_SECONDS, state.seconds)
        if state.num_bytes is not None:
            self._exporter.add(generator_metrics.WEIGHT_PULLED_BYTES, state.num_bytes)
        pause_seconds = await self._apply_or_skip(PolicyVersion.from_proto(version))
        self.joined = True
        return _acknowledgement(publish, state, pause_seconds)

    async def leave_groups(self) -> None:
        """Wait for the running apply, then leave all groups.

        Raises TimeoutError, EngineStuckError.
        """
        await self.finish_applying()
        await self.call("abandon")

    async def finish_applying(self) -> float:
        """Wait for the running apply. Returns its pause in seconds."""
        if self._applying is None:
            return 0.0
        patience_seconds = self._apply_seconds
        await asyncio.wait({self._applying}, timeout=patience_seconds)
        if not self._applying.done():
            raise EngineStuckError(f"applying did not end in {patience_seconds} s")
        applied = self._applying
        self._applying = None
        if (error := applied.exception()) is not None:
            raise EngineStuckError(f"applying failed: {type(error).__name__}: {error}") from error
        return applied.result()

    async def call(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        """A call of the workers that should return immediately. Raises TimeoutError."""
        return await self.in_time(self._engine.call_receivers(verb, *message))

    async def in_time(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a call of the engine that should return immediately.

        Raises TimeoutError.
        """
        return await within(self._settings.bucket_timeout_seconds, work)

    async def _complete(
        self,
        verb: ReceiverVerb,
        message: bytes,
        epoch: int,
        target_status: str,
        timeout_seconds: float,
    ) -> ReceiveState | None:
        """Start a join or a reception, and poll until it is `target_status` or failed; None = a
        newer epoch was announced.

        timeout_seconds: since the start, or since a pull last read something.
        """
        if epoch != self.newest_epoch:
            return None
        state = ReceiveState()
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                await self.call(verb, message)
                while epoch == self.newest_epoch:
                    num_bytes = state.num_bytes
                    state = await self.call("poll")
                    if state.status in (target_status, FAILED):
                        return state
                    if state.num_bytes != num_bytes:
                        deadline.reschedule(asyncio.get_running_loop().time() + timeout_seconds)
                    waited = time.monotonic() - started_at
                    # The interval is a share of the time waited so far, so that completion is
                    # noticed at most 5 % late; below 2 ms it would keep a core busy.
                    await asyncio.sleep(min(max(0.002, 0.05 * waited), MAX_POLL_SECONDS))
        except TimeoutError:
            reason = (
                f"the engine was {state.status}, not {target_status}, when its deadline of "
                f"{timeout_seconds:g} s passed"
            )
            return ReceiveState(FAILED, epoch, reason=reason)
        # A newer Join is queued: leave the dead groups now, so that it does not wait for their
        # deadlines.
        await self.call("abandon")
        return None

    async def _apply_or_skip(self, version: PolicyVersion) -> float:
        """Returns the pause in seconds."""
        # A version that the engine has was sent again for other generators.
        if self.version is not None and version <= self.version:
            await self.call("skip")
            return 0.0
        # A task of its own, so that the end of a session does not cancel it.
        self._applying = asyncio.ensure_future(self._apply(version))
        return await self.finish_applying()

    async def _apply(self, version: PolicyVersion) -> float:
        pause_seconds = await self._engine.apply(version)
        self.version = version
        self._on_applied()
        self._exporter.observe(generator_metrics.WEIGHT_PAUSE_SECONDS, pause_seconds)
        return pause_seconds

    def _failure_message(
        self, state: ReceiveState, version: rollout_pb2.PolicyVersion | None = None
    ) -> weights_pb2.FromGenerator:
        # The receiver is in no group until the next join, so nothing may be claimed. One that pulls
        # goes on with the weights that it has, as the bound allows.
        self.joined = self.joined and self._settings.uses_store
        failure = weights_pb2.Failed(epoch=state.epoch, version=version, reason=state.reason)
        return weights_pb2.FromGenerator(failed=failure)


def _acknowledgement(
    publish: weights_pb2.Publish, state: ReceiveState, pause_seconds: float
) -> weights_pb2.FromGenerator:
    acknowledge = weights_pb2.Acknowledge(
        version=publish.manifest.version,
        epoch=publish.epoch,
        receive_seconds=state.seconds,
        pause_seconds=pause_seconds,
    )
    return weights_pb2.FromGenerator(acknowledge=acknowledge)
