"""A generator's side of weight sync: one gRPC stream to trainer rank 0, for as long as the generator lives.

    run():  connect -> Announce -> Welcome -> (Join -> Joined, Publish -> ... -> Acknowledge)*   reconnect with back-off
                                                    |  stream breaks, trainer restarts ------------^
                                                    |  Leave unasked: fenced -> a new name --------^
                                                    |  Leave asked for: the end
    one session = four tasks:  listen (reads the stream)   obey (Join and Publish, one at a time)   beat (heartbeats)
                               beat while applying: the engine's workers answer nobody then
    HandOver is passed to the engine by listen: it must not wait until weights have arrived

    Publish -> begin_receive -> poll ... staged -> apply (or skip, if the version is held) -> Acknowledge
                                     ... failed -> Failed: rank 0 makes a new epoch and sends again
                                     ... a newer epoch was announced -> abandon without a word: this one is dead

A session may end at any moment. Only `apply` is never cut off: the next session waits for it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import grpc.aio

from rollcast.config.errors import UserError
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.config.services import Rpc, Weights
from rollcast.connections.grpc import LONGEST_PAUSE_SECONDS, call_metadata, open_channel_async
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.process_age import process_age_seconds
from rollcast.weights.plan.manifest import num_pieces
from rollcast.weights.receiver.deadlines import first_of, within
from rollcast.weights.receiver.presence import new_key
from rollcast.weights.receiver.receive_state import FAILED, JOINED, STAGED, ReceiveState
from rollcast.weights.receiver.weight_engine import EngineHeartbeat, Surviving, WeightEngine
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion, wire_mismatch
from rollcast.wire.weights_pb2_grpc import WeightSyncStub

__all__ = ["EngineHeartbeat", "EngineStuckError", "Surviving", "WeightEngine", "WeightMember"]

Result = TypeVar("Result")
Send = Callable[[weights_pb2.FromGenerator], Awaitable[None]]

CONNECT_SECONDS = 10.0
BACKOFF_SECONDS = (0.1, LONGEST_PAUSE_SECONDS)
"""First and longest pause before reconnecting."""
POLL_SECONDS = (0.002, 0.025)
"""Shortest and longest pause between polls of the engine."""
POLL_SHARE = 0.05
"""A pause between them, as a share of what was waited so far, which the end is told later by at most."""
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)

log = get_logger()


class EngineStuckError(RuntimeError):
    """Applying weights failed or did not end: nobody knows what the engine holds, the process must restart."""


class _FencedError(Exception):
    """The trainer sent Leave and nobody had asked for it."""


class _LeftError(Exception):
    """The trainer confirmed that we leave."""


class WeightMember:
    """Keeps a generator a member of the weight group, for ever.

    run() ends in three ways: `leave` was confirmed or its time was over; UserError (wrong token, lm_head mismatch: a
    mistake of configuration), of which OutOfMemory is one; EngineStuckError, or whatever error the engine raised.
    """

    def __init__(
        self,
        *,
        engine: WeightEngine,
        name: str,
        num_workers: int,
        slots: int,
        lm_head: str,
        rpc: Rpc,
        weights: Weights,
        exporter: Exporter,
        router_replay: bool = False,
        key: bytes | None = None,
    ) -> None:
        """key: as of `presence.report_starting`; None = this process has reported nothing."""
        self.name = name
        """The owner name in use; changes when the generator was fenced."""
        self.version: PolicyVersion | None = None
        """What the engine holds; None until the first apply: claim nothing before."""
        self.joined = False
        """Whether the stream to the trainer stands, a join succeeded on it, and no join or reception failed since:
        claim nothing else. A join under way changes nothing, or every newcomer would halt all."""
        self._engine, self._exporter = engine, exporter
        self._num_workers, self._slots = num_workers, slots
        self._lm_head, self._router_replay = lm_head, router_replay
        self._rpc, self._settings = rpc, weights
        self._key = new_key() if key is None else key
        self._incarnation: int | None = None
        self._announced: PolicyVersion | None = None  # the newest that this incarnation told us to take
        self._newest_epoch = 0  # that this session was asked to join
        self._applying: asyncio.Future[float] | None = None
        self._heartbeat = weights_pb2.Heartbeat()  # the last one
        self._leaving: str | None = None
        self._send: Send | None = None  # of the session in force
        self._over = asyncio.Event()
        self._confirmed = False
        self._uncounted_since = time.monotonic() - process_age_seconds()

    @property
    def ready(self) -> bool:
        """For /readyz: member of a group, holds weights of the trainer's incarnation, not leaving."""
        held = self.version is not None and self.version.incarnation == self._incarnation
        return self.joined and held and self._leaving is None

    def readiness(self, max_staleness: int) -> tuple[bool, str]:
        """For /readyz: `ready`, and the weights held are at most so many steps older than the newest announced."""
        if self.version is None or not self.ready:
            return False, "waiting for weights of the trainer"
        behind = 0 if self._announced is None else self._announced.step - self.version.step
        if behind > max_staleness:
            return False, f"holds version {self.version}, {behind} steps behind the trainer; at most {max_staleness} do"
        return True, f"holds version {self.version}"

    async def run(self) -> None:
        """Connect, take part, reconnect with back-off; see the class for how it ends."""
        await self._take_part()
        await self._finish_applying()
        await self._ask(self._engine.abandon())

    async def _take_part(self) -> None:
        pause = BACKOFF_SECONDS[0]
        while not self._over.is_set():
            try:
                await first_of(self._session(), self._over.wait())
            except _LeftError:
                self._confirmed = True
                self._over.set()
            except _FencedError as fenced:
                await self._come_back_as_new(str(fenced))
            except (grpc.aio.AioRpcError, TimeoutError, ConnectionError) as error:
                if isinstance(error, grpc.aio.AioRpcError) and error.code() in _REFUSED:
                    where = f"{self._rpc.host}:{self._rpc.port}"
                    raise UserError(f"the trainer at {where} refuses this generator: {error.details()}") from None
                if self._send is not None:
                    pause = BACKOFF_SECONDS[0]  # it was connected
                log.warning("weight sync is not connected; trying again", reason=_describe(error), seconds=pause)
                with suppress(TimeoutError):
                    await within(pause * random.uniform(0.5, 1.0), self._over.wait())
                pause = min(2 * pause, BACKOFF_SECONDS[1])
            finally:
                if self._send is not None:
                    self._uncounted_since = time.monotonic()
                self.joined, self._send = False, None

    async def leave(self, reason: str, timeout_seconds: float) -> bool:
        """Ask to leave and take part until the trainer confirms; run() then ends. False = it did not in time."""
        self._leaving = reason
        if self._send is None:  # a trainer that is gone has nothing to confirm; one that comes back soon is told
            timeout_seconds = min(timeout_seconds, CONNECT_SECONDS / 5)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                if self._send is not None:
                    with suppress(ConnectionError, grpc.aio.AioRpcError):  # then the next session says it
                        await self._send(self._leaving_message())
                await self._over.wait()
        self._over.set()
        return self._confirmed

    async def _come_back_as_new(self, reason: str) -> None:
        log.warning("fenced by the trainer; coming back as a new generator", generator=self.name, reason=reason)
        self.joined = False
        await self._finish_applying()
        await self._ask(self._engine.abandon())
        if self.version is not None:
            self._exporter.remove(names.POLICY_STEP, generator=self.name)
        self.name = await self._engine.fenced(reason)
        self._export_version()

    # One session

    async def _session(self) -> None:
        await self._finish_applying()
        async with open_channel_async(self._rpc) as channel:
            stub = WeightSyncStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Sync(metadata=call_metadata(self._rpc))
            writing = asyncio.Lock()

            async def send(message: weights_pb2.FromGenerator) -> None:
                async with writing:
                    try:
                        await within(CONNECT_SECONDS, call.write(message))
                    except asyncio.InvalidStateError:
                        raise ConnectionError("the stream is over") from None

            with suppress(ConnectionError):  # a refused call is over already; reading tells why
                await send(self._announcement())
            await self._greet(await within(CONNECT_SECONDS, call.read()))
            self._newest_epoch, self._send = 0, send
            if self._leaving is not None:
                await send(self._leaving_message())
            commands: asyncio.Queue[weights_pb2.FromTrainer] = asyncio.Queue()
            beats = self._beat(send), self._beat_while_applying(send)
            await first_of(self._listen(call, commands), self._obey(commands, send), *beats)

    async def _greet(self, message: Any) -> None:
        welcome = self._checked(message).welcome
        if mismatch := wire_mismatch(generator=WIRE_VERSION, trainer=welcome.wire):
            raise UserError(f"this generator refuses the trainer at {self._rpc.host}:{self._rpc.port}: {mismatch}")
        known, self._incarnation = self._incarnation, welcome.incarnation
        log.info("weight sync is connected", generator=self.name, incarnation=welcome.incarnation)
        if known != welcome.incarnation:
            self._announced = None
            history = [Surviving(entry.incarnation, entry.last_step) for entry in welcome.history]
            await self._engine.incarnation_changed(welcome.incarnation, history)

    def _checked(self, message: Any) -> weights_pb2.FromTrainer:
        if message is grpc.aio.EOF:
            raise ConnectionError("the trainer ended the stream")
        assert isinstance(message, weights_pb2.FromTrainer)
        if message.WhichOneof("kind") == "leave":
            raise _LeftError if self._leaving is not None else _FencedError(message.leave.reason)
        return message

    async def _listen(self, call: Any, commands: asyncio.Queue[weights_pb2.FromTrainer]) -> None:
        while True:
            message = self._checked(await call.read())
            if message.WhichOneof("kind") == "join":
                self._newest_epoch = message.join.epoch
            if message.WhichOneof("kind") == "publish":  # counts at once, though others may have to be taken before
                self._announced = PolicyVersion.from_proto(message.publish.manifest.version)
            if message.WhichOneof("kind") == "hand_over":
                await self._ask(self._engine.hand_over(list(message.hand_over.sequences)))
            else:
                commands.put_nowait(message)

    async def _beat(self, send: Send) -> None:
        while True:
            try:
                values = await within(self._settings.heartbeat_timeout_seconds, self._engine.heartbeat())
            except TimeoutError:
                if self._applying is None:
                    log.warning("the engine's workers do not answer; no heartbeat is sent", generator=self.name)
                continue
            self._heartbeat = weights_pb2.Heartbeat(
                engine_steps=values.engine_steps,
                running_rollouts=values.running_rollouts,
                decode_tokens_per_second=values.decode_tokens_per_second,
                draining=values.draining,
            )
            await send(weights_pb2.FromGenerator(heartbeat=self._heartbeat))
            await asyncio.sleep(self._settings.heartbeat_seconds)

    async def _beat_while_applying(self, send: Send) -> None:
        """Say so in the workers' stead, for as long as `_finish_applying` is patient."""
        while True:
            await asyncio.sleep(self._settings.heartbeat_seconds)
            if self._applying is not None:
                busy = weights_pb2.Heartbeat(applying=True)
                busy.MergeFrom(self._heartbeat)
                await send(weights_pb2.FromGenerator(heartbeat=busy))

    async def _obey(self, commands: asyncio.Queue[weights_pb2.FromTrainer], send: Send) -> None:
        while True:
            message = await commands.get()
            kind = message.WhichOneof("kind")
            answer = None
            if kind == "join":
                answer = await self._join(message.join)
            elif kind == "publish":
                answer = await self._take(message.publish)
            if answer is not None:
                await send(answer)

    async def _join(self, join: weights_pb2.Join) -> weights_pb2.FromGenerator | None:
        state = await self._carry_out(
            self._engine.begin_join(join.SerializeToString()), JOINED, join.epoch, 2 * join.timeout_seconds
        )
        if state is None:
            return None
        if state.status == FAILED:
            return self._failed(state)
        self.joined = True
        return weights_pb2.FromGenerator(joined=weights_pb2.Joined(epoch=join.epoch))

    async def _take(self, publish: weights_pb2.Publish) -> weights_pb2.FromGenerator | None:
        version = PolicyVersion.from_proto(publish.manifest.version)
        pieces = num_pieces(bucket.num_bytes for bucket in publish.manifest.buckets)
        deadline_seconds = (pieces + 1) * self._settings.bucket_timeout_seconds
        state = await self._carry_out(
            self._engine.begin_receive(publish.SerializeToString()), STAGED, publish.epoch, deadline_seconds
        )
        if state is None:
            return None
        if state.no_room:
            raise OutOfMemory(state.reason)
        if state.status == FAILED:
            return self._failed(state, publish.manifest.version)
        self._exporter.observe(names.WEIGHT_RECEIVE_SECONDS, state.seconds)
        pause = 0.0
        if self.version is not None and version <= self.version:
            await self._ask(self._engine.skip())  # sent again for the sake of others
        else:
            self._applying = asyncio.ensure_future(self._apply(version))
            pause = await self._finish_applying()
        acknowledge = weights_pb2.Acknowledge(
            version=publish.manifest.version, epoch=publish.epoch, receive_seconds=state.seconds, pause_seconds=pause
        )
        return weights_pb2.FromGenerator(acknowledge=acknowledge)

    def _failed(self, state: ReceiveState, version: Any = None) -> weights_pb2.FromGenerator:
        self.joined = False  # the receiver is in no group until the next join
        failed = weights_pb2.Failed(epoch=state.epoch, version=version, reason=state.reason)
        return weights_pb2.FromGenerator(failed=failed)

    async def _carry_out(
        self, begin: Coroutine[Any, Any, None], wanted: str, epoch: int, deadline_seconds: float
    ) -> ReceiveState | None:
        """Begin and poll until `wanted` or failed; None = a newer epoch makes this one pointless."""
        if epoch != self._newest_epoch:
            begin.close()
            return None
        state = ReceiveState()
        started, (shortest, longest) = time.monotonic(), POLL_SECONDS
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._ask(begin)
                while epoch == self._newest_epoch:
                    state = await self._ask(self._engine.poll())
                    if state.status in (wanted, FAILED):
                        return state
                    waited = time.monotonic() - started
                    await asyncio.sleep(min(max(shortest, POLL_SHARE * waited), longest))
        except TimeoutError:
            reason = f"the engine was {state.status} after {deadline_seconds} s, not {wanted}"
            return ReceiveState(FAILED, epoch, reason=reason)
        await self._ask(self._engine.abandon())
        return None

    async def _ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        """A call of the engine that should return at once. Raises TimeoutError."""
        return await within(self._settings.bucket_timeout_seconds, work)

    async def _apply(self, version: PolicyVersion) -> float:
        pause = await self._engine.apply(version)
        self.version = version
        self._export_version()
        self._exporter.observe(names.WEIGHT_PAUSE_SECONDS, pause)
        return pause

    async def _finish_applying(self) -> float:
        """Wait for the apply in hand, which goes on whatever happens to the session. Returns its pause in seconds."""
        if self._applying is None:
            return 0.0
        await asyncio.wait({self._applying}, timeout=self._settings.acknowledge_timeout_seconds)
        if not self._applying.done():
            raise EngineStuckError(f"applying did not end in {self._settings.acknowledge_timeout_seconds} s")
        applied, self._applying = self._applying, None
        if (error := applied.exception()) is not None:
            raise EngineStuckError(f"applying failed: {_describe(error)}") from error
        return applied.result()

    def _export_version(self) -> None:
        if self.version is not None:
            self._exporter.set(names.POLICY_STEP, self.version.step, generator=self.name)

    def _announcement(self) -> weights_pb2.FromGenerator:
        announce = weights_pb2.Announce(
            generator=self.name,
            version=None if self.version is None else self.version.to_proto(),
            num_workers=self._num_workers,
            lm_head=self._lm_head,
            slots=self._slots,
            uncounted_seconds=time.monotonic() - self._uncounted_since,
            wire=WIRE_VERSION,
            router_replay=self._router_replay,
            key=self._key,
        )
        return weights_pb2.FromGenerator(announce=announce)

    def _leaving_message(self) -> weights_pb2.FromGenerator:
        return weights_pb2.FromGenerator(leaving=weights_pb2.Leaving(reason=self._leaving or ""))


def _describe(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"
