"""The generator service: one vLLM engine between the two wires.

start engine -> HTTP -> join weights (no version: not ready, claims nothing) -> claim, sample, grade, publish
    SIGTERM -> stop claiming -> finish for drain_seconds -> hand the rest back -> leave the weight group -> exit 0
    engine dead, or a member that is stuck -> exit 1: to be started again under a new owner name
"""

from __future__ import annotations

import asyncio
import contextlib
import signal

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.connections.http import HttpServer, listen, publish_port, service_routes
from rollcast.generator.claims import ClaimLoop, Slots
from rollcast.generator.engine import Engine, set_environment
from rollcast.generator.grading import GradingThreads, check_grading
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.generator.weight_engine import GeneratorWeights, new_owner
from rollcast.rollouts.base import GeneratorQueue
from rollcast.rollouts.redis_streams import RedisGeneratorQueue
from rollcast.tasks.prompts import verifier_names
from rollcast.tasks.verifiers import find_verifier
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.member import WeightMember

LEAVE_SECONDS = 5.0
"""Deadline for the trainer's confirmation that this member may go."""
HAND_BACK_SECONDS = 5.0
STOP_CLAIMING_SECONDS = 2.0
"""For a claim under way; only a Redis that is away makes it last."""

log = get_logger()


async def serve(config: RunConfig, name: str, index: int) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises UserError before anything is left behind.

    index: among the generators of this machine.
    """
    config = on_own_core(config, index)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    slots = Slots(
        total=config.generator.slots,
        train_rollouts=config.recipe.most_rollouts_per_prompt,
        eval_rollouts=config.tasks.most_evaluation_rollouts,
        max_eval_share=config.tasks.evaluation.max_slot_share,
    )
    check_grading(config.tasks)
    exporter = Exporter(config.run)
    remote = await reach_grader(config, exporter)
    listener = listen(config.http.bind, config.generator.http_port, setting="generator.http_port")
    set_environment(config)
    service: GeneratorService | None = None

    def ready() -> tuple[bool, str]:
        return service.ready() if service else (False, "engine is starting")

    http = HttpServer(service_routes(exporter.render, ready), listener, config.http)
    http.start()
    try:
        engine = await Engine.start(config, name)
        try:
            publish_port(config.run_folder, name, http.port)
            service = GeneratorService(config, name, engine, slots, exporter, remote)
            return await service.run(stopping)
        finally:
            engine.shutdown()
    finally:
        http.stop()


async def reach_grader(config: RunConfig, exporter: Exporter) -> RemoteSandbox | None:
    """The grader of the run file, asked whether it will grade this run; None where gradings stay on this machine.

    Raises UserError where it refuses; one that is away is waited for when there is something to grade.
    """
    if config.tasks.grading.sandbox != "remote":
        return None
    remote = RemoteSandbox(config.grader_rpc, config.grader.patience_seconds, config.tasks.grading, exporter)
    if verifiers := [name for name in sorted(verifier_names(config.tasks)) if find_verifier(name).sandboxed]:
        await asyncio.to_thread(remote.check, verifiers)
    return remote


def on_own_core(config: RunConfig, index: int) -> RunConfig:
    """The settings of the index-th generator of this machine: where generator.cpu is set, each takes the next core."""
    if config.generator.cpu is None:
        return config
    return config.model_copy(
        update={"generator": config.generator.model_copy(update={"cpu": config.generator.cpu + index})}
    )


class GeneratorService:
    """What runs beside the engine: claims, grading and the weight member."""

    def __init__(
        self,
        config: RunConfig,
        name: str,
        engine: Engine,
        slots: Slots,
        exporter: Exporter,
        remote: RemoteSandbox | None,
    ) -> None:
        self._config = config
        self._engine = engine
        self._grader = GradingThreads(engine.decode, config.tasks.grading, exporter, remote)

        def open_queue(owner: str) -> GeneratorQueue:
            return RedisGeneratorQueue(config.redis, config.run, owner)

        self._claims = ClaimLoop(
            engine=engine,
            grader=self._grader,
            open_queue=open_queue,
            owner=new_owner(name),
            slots=slots,
            renew_seconds=2 * config.weights.heartbeat_seconds,
            fence_patience_seconds=2 * config.weights.heartbeat_timeout_seconds,
            reaches_trainer=lambda: self._member.joined,
            exporter=exporter,
        )
        self._member = WeightMember(
            engine=GeneratorWeights(name, engine, self._claims, exporter),
            name=self._claims.owner,
            num_workers=engine.num_workers,
            slots=slots.total,
            lm_head=config.recipe.lm_head,
            rpc=config.rpc,
            weights=config.weights,
            exporter=exporter,
        )

    def ready(self) -> tuple[bool, str]:
        """For /readyz: takes work, and holds weights of the trainer that are not older than a trained token may be."""
        if self._engine.failed:
            return False, "engine is dead"
        if self._claims.draining:
            return False, "draining"
        if self._engine.version is None:
            return False, "waiting for weights of the trainer"
        return self._member.readiness(self._config.recipe.schedule.max_staleness)

    async def run(self, stopping: asyncio.Event) -> int:
        """Until `stopping`, or until a part ends that should not. Returns the exit code."""
        claims = asyncio.create_task(self._claims.run())
        member = asyncio.create_task(self._member.run())
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({claims, member, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                return self._broken(claims if claims.done() else member)
            log.info("draining", running_rollouts=self._claims.num_running)
            self._claims.stop_claiming()
            await asyncio.wait({claims}, timeout=STOP_CLAIMING_SECONDS)
            await self._claims.drain(self._config.generator.drain_seconds, HAND_BACK_SECONDS)
            confirmed = await self._member.leave("draining", LEAVE_SECONDS)
            log.info("left", confirmed=confirmed)
            return 0
        finally:
            for task in (claims, member, stop):
                task.cancel()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._claims.close(), 5.0)
            self._grader.close()

    def _broken(self, task: asyncio.Task[None]) -> int:
        """A part ended by itself: the user's mistake is raised, anything else ends the process for a fresh start."""
        error = task.exception()
        if isinstance(error, UserError):
            raise error
        log.error("generator ends", reason=repr(error) if error else "left the weight group")
        return 1
