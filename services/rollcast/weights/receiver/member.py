"""A generator's side of weight sync: one gRPC stream to trainer rank 0 for as long as the generator
lives.

    run():  connect -> Announce -> Welcome -> (Join -> Joined, Publish -> ... -> Acknowledge)*
               ^                                    |
               |---- reconnect with back-off -------|  stream breaks, trainer restarts
               `------------------------------------|  Leave without our request: fenced, new name
                                                    `- Leave at our request: the end

One session has four tasks:

    listen                    reads the stream. HandOver goes to the engine immediately, Join and
                              Publish are queued
    carry out                 Join and Publish, one at a time (`Reception`)
    heartbeats                from the engine's workers
    heartbeats, applying      the last known ones again, because workers that load a version do not
                              answer

A session may end at any moment. Only applying is never cut off: the next session waits for it.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import grpc
import grpc.aio

from rollcast.config.connections import Rpc, Weights
from rollcast.config.errors import UserError
from rollcast.connections.grpc import LONGEST_PAUSE_SECONDS, call_metadata, open_channel_async
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.process_age import process_age_seconds
from rollcast.weights.receiver.presence import new_key
from rollcast.weights.receiver.reception import Reception, within
from rollcast.weights.receiver.weight_engine import WeightEngine
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion, Surviving, wire_mismatch
from rollcast.wire.weights_pb2_grpc import WeightSyncStub

Send = Callable[[weights_pb2.FromGenerator], Awaitable[None]]

CONNECT_SECONDS = 10.0
LEAVE_WITHOUT_STREAM_SECONDS = CONNECT_SECONDS / 5
"""How long a leaving member without a stream waits for one. A trainer that has ended cannot
confirm."""
MIN_LOG_SECONDS = 1.0
"""Length of an outage from which it is logged again, each time it has doubled: the trainer may have
ended for good."""
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)

log = get_logger()


class _FencedError(Exception):
    """The trainer sent Leave without our request."""


class _LeftError(Exception):
    """The trainer confirmed that we leave."""


@dataclass(eq=False)
class WeightMember:
    """Keeps a generator a member of the weight group until it leaves.

    run() ends in three ways: `leave` was confirmed or its time was over; UserError (wrong token,
    lm_head mismatch: a mistake of configuration), of which OutOfMemory is one; EngineStuckError, or
    whatever error the engine raised.
    """

    _: KW_ONLY
    engine: WeightEngine
    name: str
    """The owner name in use; changes when the generator was fenced."""
    num_workers: int
    slots: int
    lm_head: str
    rpc: Rpc
    weights: Weights
    exporter: Exporter
    router_replay: bool = False
    key: bytes = field(default_factory=new_key)
    """The one given to `report_starting`; a new one if this process has reported nothing."""

    def __post_init__(self) -> None:
        self._reception = Reception(self.engine, self.weights, self.exporter, self._export_version)
        self._incarnation: int | None = None
        self._announced: PolicyVersion | None = None
        """The newest that this incarnation has announced."""
        self._heartbeat = weights_pb2.Heartbeat()  # the last one
        self._leaving: str | None = None
        self._send: Send | None = None  # of the current session
        self._over = asyncio.Event()
        self._confirmed = False
        self._uncounted_since = time.monotonic() - process_age_seconds()

    @property
    def version(self) -> PolicyVersion | None:
        """The version that the engine holds; None until the first apply: claim nothing before."""
        return self._reception.version

    @property
    def joined(self) -> bool:
        """Whether the stream to the trainer is open, a join succeeded on it, and no join or
        reception failed since: claim nothing otherwise. A running join changes nothing, or every
        newcomer would stop all generators."""
        return self._reception.joined

    @property
    def ready(self) -> bool:
        """Whether it is in a group, holds weights of the trainer's incarnation,
        and is not leaving.
        """
        has_current_weights = (
            self.version is not None and self.version.incarnation == self._incarnation
        )
        return self.joined and has_current_weights and self._leaving is None

    def readiness(self, max_staleness: int) -> tuple[bool, str]:
        """The answer of /readyz: `ready`, and at most `max_staleness` steps older than the newest
        version announced.
        """
        if self.version is None or not self.ready:
            return False, "waiting for weights of the trainer"
        lag_steps = 0 if self._announced is None else self._announced.step - self.version.step
        if lag_steps > max_staleness:
            lag_words = f"{lag_steps} steps behind the trainer; at most {max_staleness} do"
            return False, f"holds version {self.version}, {lag_words}"
        return True, f"holds version {self.version}"

    async def run(self) -> None:
        """Connect, take part, reconnect with back-off; see the class for how it ends."""
        await self._stay_connected()
        await self._reception.leave_groups()

    async def leave(self, reason: str, timeout_seconds: float) -> bool:
        """Ask to leave and take part until the trainer confirms; run() then ends.

        False = it did not in time.
        """
        self._leaving = reason
        if self._send is None:
            timeout_seconds = min(timeout_seconds, LEAVE_WITHOUT_STREAM_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                if self._send is not None:
                    # If the stream is broken, the next session sends it.
                    with suppress(ConnectionError, grpc.aio.AioRpcError):
                        await self._send(self._leaving_message())
                await self._over.wait()
        self._over.set()
        return self._confirmed

    async def _stay_connected(self) -> None:
        min_reconnect_pause_seconds = 0.1
        pause_seconds = min_reconnect_pause_seconds
        away_since = time.monotonic()
        next_log_seconds = 0.0
        while not self._over.is_set():
            try:
                await run_until_first(self._session(), self._over.wait())
            except _LeftError:
                self._confirmed = True
                self._over.set()
            except _FencedError as fenced:
                await self._come_back_as_new(str(fenced))
            except (grpc.aio.AioRpcError, TimeoutError, ConnectionError) as error:
                if isinstance(error, grpc.aio.AioRpcError) and error.code() in _REFUSED:
                    where = f"{self.rpc.host}:{self.rpc.port}"
                    raise UserError(
                        f"the trainer at {where} refuses this generator: {error.details()}"
                    ) from None
                # It was connected: the trainer is probably back soon.
                if self._send is not None:
                    pause_seconds = min_reconnect_pause_seconds
                    away_since = time.monotonic()
                    next_log_seconds = 0.0
                away_seconds = time.monotonic() - away_since
                if away_seconds >= next_log_seconds:
                    reason = _describe(error)
                    log.warning(
                        "weight sync is not connected; trying again",
                        reason=reason,
                        away_seconds=away_seconds,
                    )
                    next_log_seconds = max(MIN_LOG_SECONDS, 2 * away_seconds)
                # At random, so that the generators of a run do not connect to a restarted trainer
                # all together.
                with suppress(TimeoutError):
                    await within(pause_seconds * random.uniform(0.5, 1.0), self._over.wait())
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            finally:
                if self._send is not None:
                    self._uncounted_since = time.monotonic()
                self._reception.joined = False
                self._send = None

    async def _come_back_as_new(self, reason: str) -> None:
        log.warning(
            "fenced by the trainer; coming back as a new generator",
            generator=self.name,
            reason=reason,
        )
        self._reception.joined = False
        await self._reception.leave_groups()
        if self.version is not None:
            self.exporter.remove(generator_metrics.POLICY_STEP, generator=self.name)
        self.name = await self.engine.change_owner(reason)
        self._export_version()

    # One session

    async def _session(self) -> None:
        await self._reception.finish_applying()
        async with open_channel_async(self.rpc) as channel:
            stub = WeightSyncStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Sync(metadata=call_metadata(self.rpc))
            writing = asyncio.Lock()

            async def send(message: weights_pb2.FromGenerator) -> None:
                async with writing:
                    try:
                        await within(CONNECT_SECONDS, call.write(message))
                    except asyncio.InvalidStateError:
                        raise ConnectionError("the stream is over") from None

            # A refused call is over already; reading says why.
            with suppress(ConnectionError):
                await send(self._announcement())
            await self._receive_welcome(await within(CONNECT_SECONDS, call.read()))
            self._reception.newest_epoch = 0
            self._send = send
            if self._leaving is not None:
                await send(self._leaving_message())
            commands: asyncio.Queue[weights_pb2.FromTrainer] = asyncio.Queue()
            await run_until_first(
                self._listen(call, commands),
                self._carry_out(commands, send),
                self._send_heartbeats(send),
                self._send_heartbeats_while_applying(send),
            )

    async def _receive_welcome(self, message: object) -> None:
        welcome = self._unless_over(message).welcome
        if mismatch := wire_mismatch(generator=WIRE_VERSION, trainer=welcome.wire):
            raise UserError(
                f"this generator refuses the trainer at {self.rpc.host}:{self.rpc.port}: {mismatch}"
            )
        former_incarnation = self._incarnation
        self._incarnation = welcome.incarnation
        log.info("weight sync is connected", generator=self.name, incarnation=welcome.incarnation)
        if former_incarnation != welcome.incarnation:
            self._announced = None
            history = [Surviving(entry.incarnation, entry.last_step) for entry in welcome.history]
            await self.engine.incarnation_changed(welcome.incarnation, history)

    def _unless_over(self, message: object) -> weights_pb2.FromTrainer:
        """The message. Raises if it is the end of the stream or a Leave."""
        if message is grpc.aio.EOF:
            raise ConnectionError("the trainer ended the stream")
        assert isinstance(message, weights_pb2.FromTrainer)
        if message.WhichOneof("kind") == "leave":
            raise _LeftError if self._leaving is not None else _FencedError(message.leave.reason)
        return message

    async def _listen(
        self,
        call: "grpc.aio.StreamStreamCall[weights_pb2.FromGenerator, weights_pb2.FromTrainer]",
        commands: asyncio.Queue[weights_pb2.FromTrainer],
    ) -> None:
        while True:
            message = self._unless_over(await call.read())
            match message.WhichOneof("kind"):
                case "join":
                    self._reception.newest_epoch = message.join.epoch
                    commands.put_nowait(message)
                case "publish":
                    # Counts immediately, although queued commands may come first.
                    self._announced = PolicyVersion.from_proto(message.publish.manifest.version)
                    # A pull belongs to no group that a Join has announced.
                    if self.weights.uses_store:
                        self._reception.newest_epoch = message.publish.epoch
                    commands.put_nowait(message)
                case "hand_over":
                    sequences = list(message.hand_over.sequences)
                    await self._reception.in_time(self.engine.hand_over(sequences))

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            try:
                self._heartbeat = await within(
                    self.weights.heartbeat_timeout_seconds, self.engine.heartbeat()
                )
            except TimeoutError:
                # Workers that load a version do not answer, which `_send_heartbeats_while_applying`
                # covers.
                if not self._reception.is_applying:
                    log.warning(
                        "the engine's workers do not answer; no heartbeat is sent",
                        generator=self.name,
                    )
                continue
            await send(weights_pb2.FromGenerator(heartbeat=self._heartbeat))
            await asyncio.sleep(self.weights.heartbeat_seconds)

    async def _send_heartbeats_while_applying(self, send: Send) -> None:
        """Replaces the workers' heartbeats. `Reception.finish_applying` limits how long."""
        while True:
            await asyncio.sleep(self.weights.heartbeat_seconds)
            if self._reception.is_applying:
                busy = weights_pb2.Heartbeat(applying=True)
                busy.MergeFrom(self._heartbeat)
                await send(weights_pb2.FromGenerator(heartbeat=busy))

    async def _carry_out(
        self, commands: asyncio.Queue[weights_pb2.FromTrainer], send: Send
    ) -> None:
        while True:
            message = await commands.get()
            if message.WhichOneof("kind") == "join":
                answer = await self._reception.join(message.join)
            elif self.weights.uses_store:
                answer = await self._reception.pull(message.publish)
            else:
                answer = await self._reception.receive(message.publish)
            if answer is not None:
                await send(answer)

    def _export_version(self) -> None:
        if self.version is not None:
            self.exporter.set(generator_metrics.POLICY_STEP, self.version.step, generator=self.name)

    def _announcement(self) -> weights_pb2.FromGenerator:
        announce = weights_pb2.Announce(
            generator=self.name,
            version=None if self.version is None else self.version.to_proto(),
            num_workers=self.num_workers,
            lm_head=self.lm_head,
            slots=self.slots,
            uncounted_seconds=time.monotonic() - self._uncounted_since,
            wire=WIRE_VERSION,
            router_replay=self.router_replay,
            pulls=self.weights.uses_store,
            key=self.key,
        )
        return weights_pb2.FromGenerator(announce=announce)

    def _leaving_message(self) -> weights_pb2.FromGenerator:
        return weights_pb2.FromGenerator(leaving=weights_pb2.Leaving(reason=self._leaving or ""))


async def run_until_first(*work: Coroutine[Any, Any, object]) -> None:
    """Run all until the first ends, then cancel the others; raises the error of the first."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended_tasks = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended_tasks:
        task.result()


def _describe(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"
