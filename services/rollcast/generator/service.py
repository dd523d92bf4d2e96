"""The generator service: one vLLM engine between the two wires.

check, listen -> fork the engine's process -> HTTP -> start engine
    -> join weights (no version: not ready, claims nothing) -> claim, sample, grade, publish
    SIGTERM -> stop claiming -> finish for drain_seconds -> hand the rest back
            -> leave the weight group -> exit 0
    SIGTERM while the engine starts -> exit 0 immediately: nothing to hand back, and the warden
                                       ends the engine
    engine dead, or its weights unknown -> exit 1: to be started again under a new owner name
    out of memory -> one sentence, exit 2; with `park`, for a supervisor that never gives up: the
                     engine ends, and the service reports the sentence on /readyz until SIGTERM
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial
from socket import socket
from typing import TypeVar

from rollcast.chat.check import check_chat_format
from rollcast.config.connections import Rpc
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.config.run import RunConfig
from rollcast.config.services import Generator
from rollcast.config.tasks import Tasks
from rollcast.connections.http import listen
from rollcast.connections.port_files import publish_port
from rollcast.environments.of_run import missing_in_cluster
from rollcast.generator.claims import ClaimLoop
from rollcast.generator.endpoint.make import check_harnesses, make_sessions
from rollcast.generator.endpoint.make import serve as serve_http
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.endpoint.single_calls import serve_single_calls
from rollcast.generator.episodes.make import episode_parts
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.grading import GradingThreads, check_grading
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.generator.slots import Slots, claimable
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_failure import no_room_at_work
from rollcast.generator.vllm.engine_process import EngineFork
from rollcast.generator.vllm.engine_start import set_environment
from rollcast.generator.weights import GeneratorWeights, new_owner
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.runfolder.verifier_failures import failures_file
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.mappings import verifier_names
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.host_memory import kills
from rollcast.telemetry.locked_memory import why_not_registered
from rollcast.telemetry.logging import get_logger
from rollcast.weights.receiver.member import WeightMember
from rollcast.weights.receiver.presence import new_key, report_starting

T = TypeVar("T")
log = get_logger()


@dataclass(slots=True)
class Standing:
    """The answers of the probes."""

    service: GeneratorService | None = None
    parked: str = ""
    """Why the engine has ended and is not started again; empty = it has not."""

    def startup_status(self) -> tuple[bool, str]:
        return (
            (True, self.parked or "ok")
            if self.service or self.parked
            else (False, "engine is starting")
        )

    def ready(self) -> tuple[bool, str]:
        if self.parked:
            return False, self.parked
        return self.service.ready() if self.service else self.startup_status()


def serve(config: RunConfig, name: str, index: int, *, park: bool) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises UserError before anything is left
    behind.

    index: number of this generator on this machine. park: if memory is short, stay without an
    engine. Call it while this process has one thread and no open files.
    """
    config = config.model_copy(update={"generator": on_own_core_and_port(config.generator, index)})
    # Checks the run file before anything heavy is started; the size of the KV cache is not known
    # yet.
    claimable(config.generator, config.recipe, config.tasks, full_rollouts=0)
    check_grading(config.tasks)
    check_harnesses(config.tasks, config.http)
    listener = listen(config.http.bind, config.generator.http_port, setting="generator.http_port")
    set_environment(config.generator)
    if (sentence := why_not_registered()) is not None:
        log.warning(sentence)
    # The first process of a container ignores signals without a handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    with EngineFork(listener) as fork:
        return asyncio.run(_serve(config, name, listener, fork, park=park))


async def _serve(
    config: RunConfig, name: str, listener: socket, fork: EngineFork, *, park: bool
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    exporter = Exporter(config.run)
    remote = await _wait_for_start(
        reach_grader(config.tasks, config.grader_rpc, config.grader.patience_seconds, exporter),
        stopping,
    )
    standing = Standing()
    sessions = make_sessions(config.model, config.tasks, config.http)
    probes = (standing.ready, standing.startup_status)
    http = serve_http(config.http, listener, exporter, sessions, *probes)
    key = new_key()
    starting = asyncio.create_task(report_starting(config.rpc, key))
    checking = asyncio.create_task(_check_episodes(config.model, config.tasks))
    try:
        engine = await _wait_for_start(Engine.start(config, name, fork), stopping)
        starting.cancel()
        try:
            await _wait_for_start(checking, stopping)
            publish_port(config.run_folder, name, http.port)
            slots = claimable(config.generator, config.recipe, config.tasks, engine.full_rollouts)
            if config.tasks.environments:
                kv_tokens = engine.full_rollouts * config.model.max_length
                slots = replace(slots, episode_kv_tokens=kv_tokens)
            episodes = episode_parts(config.model, config.tasks, slots.total, exporter)
            if sessions is not None and episodes is not None:
                serve_single_calls(sessions, engine, episodes, config.recipe, slots.total)
            log.info(
                "engine ready",
                threads=engine.num_threads,
                slots=slots.total,
                full_rollouts=engine.full_rollouts,
            )
            exporter.set(generator_metrics.GENERATOR_SLOTS, slots.total)
            standing.service = GeneratorService(
                config, name, engine, slots, exporter, remote, key, episodes, sessions
            )
            return await standing.service.run(stopping)
        finally:
            engine.shutdown()
    except OutOfMemory as error:
        if not park:
            raise
        log.error(
            "parked: the engine is not started again; this process ends at SIGTERM",
            reason=str(error),
        )
        standing.parked = str(error)
        exporter.set(generator_metrics.GENERATOR_PARKED, 1)
        await stopping.wait()
        return error.exit_code
    finally:
        starting.cancel()
        checking.cancel()
        http.stop()


async def _check_episodes(model: Model, tasks: Tasks) -> None:
    """Raises UserError if the run has environments, and the model no chats or the cluster no pods
    for them.
    """
    if tasks.environments:
        await check_chat_format(model, tasks.prompt_format)
        if sentences := await asyncio.to_thread(missing_in_cluster, tasks.environments):
            raise UserError("\n".join(sentences))


async def _wait_for_start(start: Awaitable[T], stopping: asyncio.Event) -> T:
    """The grader or the engine once it has started; ends this process if it is asked to stop
    before.
    """
    starting = asyncio.ensure_future(start)
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("stopped before its start was complete")
        # A regular exit would wait for the starting thread, which cannot be interrupted.
        os._exit(0)
    stop.cancel()
    return await starting


async def reach_grader(
    tasks: Tasks, rpc: Rpc, patience_seconds: float, exporter: Exporter
) -> RemoteSandbox | None:
    """The grader of the run file, after it accepted this run; None = gradings run on this machine.

    Raises UserError if it refuses. A grader that does not respond is waited for when there is
    something to grade.
    """
    if tasks.grading.sandbox != "remote":
        return None
    remote = RemoteSandbox(rpc, patience_seconds, tasks.grading, exporter)
    verifier_registry = Verifiers.from_tasks(tasks)
    if verifiers := [
        name for name in sorted(verifier_names(tasks)) if verifier_registry.find(name).sandboxed
    ]:
        await asyncio.to_thread(remote.check, verifiers)
    return remote


def on_own_core_and_port(generator: Generator, index: int) -> Generator:
    """The settings of the index-th generator of this machine: each takes the next core and the next
    port, if set.
    """
    overrides: dict[str, int] = {}
    if generator.cpu is not None:
        overrides["cpu"] = generator.cpu + index
    if generator.http_port:  # 0 stays any free port
        overrides["http_port"] = generator.http_port + index
    return generator.model_copy(update=overrides)


@dataclass(eq=False)
class GeneratorService:
    """The parts around the engine: claims, grading and the weight member."""

    config: RunConfig
    name: str
    engine: Engine
    slots: Slots
    exporter: Exporter
    remote: RemoteSandbox | None
    key: bytes
    """The one that this process has reported to the trainer while its engine started."""
    episodes: EpisodeParts | None
    """None = the run has no environments."""
    sessions: Sessions | None
    """None = none of them is a harness."""

    def __post_init__(self) -> None:
        config = self.config
        self._kills = kills()
        failures = failures_file(config.run_folder, self.name)
        self._grader = GradingThreads(
            self.engine.decode, config.tasks, self.exporter, self.remote, failures
        )
        self._claims = ClaimLoop(
            engine=self.engine,
            grader=self._grader,
            open_queue=partial(RedisGeneratorQueue, config.redis, config.run),
            first_owner=new_owner(self.name),
            slots=self.slots,
            renew_seconds=2 * config.weights.heartbeat_seconds,
            fence_patience_seconds=2 * config.weights.heartbeat_timeout_seconds,
            reaches_trainer=lambda: self._member.joined,
            exporter=self.exporter,
            episodes=self.episodes,
            sessions=self.sessions,
        )
        self._member = WeightMember(
            engine=GeneratorWeights(self.name, self.engine, self._claims, self.exporter),
            name=self._claims.owner,
            num_workers=self.engine.num_receivers,
            slots=self.slots.total,
            lm_head=config.recipe.lm_head,
            rpc=config.rpc,
            weights=config.weights,
            exporter=self.exporter,
            router_replay=config.recipe.router_replay,
            key=self.key,
        )

    def ready(self) -> tuple[bool, str]:
        """The answer of /readyz: it claims tasks, and its weights are not older than a trained
        token may be.
        """
        if self.engine.failed:
            return False, "engine is dead"
        if self._claims.draining:
            return False, "draining"
        if self.engine.version is None:
            return False, "waiting for weights of the trainer"
        return self._member.readiness(self.config.recipe.schedule.max_staleness)

    async def run(self, stopping: asyncio.Event) -> int:
        """Run until `stopping`, or until a part ends unexpectedly. Returns the exit code."""
        claims = asyncio.create_task(self._claims.run())
        member = asyncio.create_task(self._member.run())
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({claims, member, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                return self._broken(claims if claims.done() else member)
            log.info("draining", running_rollouts=self._claims.num_running)
            self._claims.stop_claiming()
            # Deadline for a running claim, which only an unreachable Redis delays
            await asyncio.wait({claims}, timeout=2.0)
            # Seconds for handing claimed tasks back to Redis
            await self._claims.drain(self.config.generator.drain_seconds, 5.0)
            # Deadline for the trainer's confirmation that this member may go
            confirmed = await self._member.leave("draining", 5.0)
            log.info("left", confirmed=confirmed)
            return 0
        finally:
            for task in (claims, member, stop):
                task.cancel()
            with contextlib.suppress(Exception):
                # A Redis that is away must not keep the rest from being closed.
                await asyncio.wait_for(self._claims.close(), 5.0)
            if self.sessions is not None:
                await self.sessions.close()
            if self.episodes is not None:
                await self.episodes.close()
            await self._grader.close()

    def _broken(self, task: asyncio.Task[None]) -> int:
        """A part ended unexpectedly: a user's mistake is raised, anything else ends the process for
        a new start.
        """
        error = task.exception()
        if isinstance(error, UserError):
            raise error
        killed = self.engine.failed and kills() > self._kills
        shortage = no_room_at_work(self.config.generator, error, self.engine.no_room, killed=killed)
        if shortage is not None:
            raise shortage
        reason = self.engine.end or (repr(error) if error else "left the weight group")
        log.error("generator ends", reason=reason)
        return 1
