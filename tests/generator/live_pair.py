"""A trainer's learner and a generator's engine in one process, joined by wire 2 as in a run."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rollcast.config.run import RunConfig
from rollcast.generator.vllm import engine_start
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import EngineRequest, Sampled
from rollcast.generator.weights import GeneratorWeights
from rollcast.rollouts.records import Sampling
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.receiver.member import WeightMember
from rollcast.weights.sender.publisher import Publisher
from rollcast.wire.version import PolicyVersion
from testkit.generator.forked_engines import forked_engines

SLOTS = 64


class NoClaims:
    """What the weights ask of the claim loop, in a generator whose requests come from the test
    instead of Redis.
    """

    draining = False

    async def wait_until_recorded(self) -> None: ...

    async def restart_lost(self, lost: Callable[[PolicyVersion], bool]) -> int:
        return 0


class LivePair:
    """`publish` sends the learner's weights to the engine, `sample` asks the engine, `logprobs` the
    learner.
    """

    def __init__(self, config: RunConfig, group: LearnerGroup, engine: Engine) -> None:
        self.group = group
        self.engine = engine
        self.removed: list[str] = []
        self.publisher = Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=1,
            history=(),
            lm_head=config.recipe.lm_head,
            specs=group.specs,
            device=torch.device("cpu"),
            exporter=Exporter(config.run),
            on_removed=lambda generator, reason: self.removed.append(reason),
            slots=group.slots,
            lanes=group.lanes,
            router_replay=config.recipe.router_replay,
            rank_store=group.rank_store,
        )
        self.publisher.start()
        claims: Any = NoClaims()
        exporter = Exporter(config.run)
        self.member = WeightMember(
            engine=GeneratorWeights("a", engine, claims, exporter),
            name="a",
            num_workers=engine.num_receivers,
            slots=SLOTS,
            lm_head=config.recipe.lm_head,
            rpc=config.rpc,
            weights=config.weights,
            exporter=exporter,
            router_replay=config.recipe.router_replay,
        )
        self.running = asyncio.create_task(self.member.run())

    async def publish(self, step: int) -> None:
        """Return when the engine samples with the learner's weights."""
        version = PolicyVersion(1, step)
        slot = self.publisher.stage()
        self.group.stage(slot, version)
        self.publisher.publish(slot, version)
        deadline = time.monotonic() + 60.0
        while self.engine.version != version:
            if self.running.done():
                self.running.result()
            assert time.monotonic() < deadline, self.removed
            await asyncio.sleep(0.02)

    async def sample(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Sampled]:
        requests = [
            EngineRequest(list(prompt), max_tokens, Sampling(), seed, lambda version: str(version))
            for seed, prompt in enumerate(prompts)
        ]
        async with asyncio.timeout(120):
            return await asyncio.gather(*(self.engine.sample(request) for request in requests))

    def logprobs(
        self, sequences: Sequence[TrainingSequence], *, replay: bool = False
    ) -> NDArray[np.float32]:
        """The learner's, of every token with loss, in order; with the generator's experts if they
        are replayed.
        """
        batch = pad_micro_batch(tuple(sequences), torch.device("cpu"))
        with torch.no_grad():
            logprobs, _ = self.group.learner.policy(
                batch.input_ids,
                batch.positions,
                batch.targets,
                batch.routed_experts if replay else None,
            )
        return np.asarray(logprobs.numpy())

    async def close(self) -> None:
        """Leave the weight group and stop both ends; the engine goes on."""
        assert await self.member.leave("end of test", 5.0)
        await asyncio.wait_for(self.running, 10.0)
        self.publisher.stop(2.0)


async def start_engine(config: RunConfig, *, worker: str) -> Engine:
    """`worker`: a class that adds to the generator's."""
    engine_start.set_environment(config.generator)
    arguments = engine_start.engine_arguments(config, "a") | {"worker_extension_cls": worker}
    with pytest.MonkeyPatch.context() as patch, forked_engines():
        patch.setattr(engine_start, "engine_arguments", lambda config, name: arguments)
        return await Engine.start(config, "a")


@asynccontextmanager
async def joined_pair(config: RunConfig, ranks: Ranks, engine: Engine) -> AsyncIterator[LivePair]:
    """Build a learner for a run file and join it with an engine that runs."""
    pair = LivePair(config, LearnerGroup.build(config, ranks), engine)
    yield pair
    await pair.close()


@asynccontextmanager
async def live_pair(
    config: RunConfig, ranks: Ranks, *, worker: str = engine_start.WORKER_EXTENSION
) -> AsyncIterator[LivePair]:
    """Start an engine and build a learner for one run file."""
    engine = await start_engine(config, worker=worker)
    try:
        async with joined_pair(config, ranks, engine) as pair:
            yield pair
    finally:
        engine.shutdown()
        await asyncio.sleep(0.1)
        # vLLM's sockets warn when they are collected: that must not fall on another test
        gc.collect()


def training_sequence(
    prompt: Sequence[int], sampled: Sampled, advantage: float
) -> TrainingSequence:
    return TrainingSequence(
        prompt_token_ids=np.asarray(prompt, dtype=np.int32),
        token_ids=np.asarray(sampled.token_ids, dtype=np.int32),
        generator_logprobs=np.asarray(sampled.logprobs, dtype=np.float32),
        loss_mask=np.ones(len(sampled.token_ids), dtype=np.bool_),
        advantage=advantage,
        weight=1.0,
        routed_experts=sampled.routed_experts,
    )
