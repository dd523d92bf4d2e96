"""The pause of a real vLLM generator with two tensor-parallel workers and host staging, and plain
copies.

A random Qwen3 of 300 M parameters in bfloat16 on CPU; versions come over wire 2 while rollouts are
sampled. The plain copy follows each version: two processes in parallel, each with as many bytes as
a worker holds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, Qwen3Config

from lab.weights.lanes import CPU
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.vllm import engine_start
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.generator.weights import GeneratorWeights
from rollcast.local.ports import free_port
from rollcast.rollouts.records import Sampling
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets, total_bytes
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.member import WeightMember
from rollcast.weights.sender.publisher import Publisher
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.tiny_model import write_tokenizer

WORKERS = 2
ROLLOUTS, MAX_TOKENS = 4, 400
LONGEST_PAUSE = 1.5
"""Over the copy."""
IDLE_SECONDS = 1.5
"""Until vLLM's workers, which look for work for a second without a rest, leave the cores to
others."""
PATIENCE_SECONDS = 120.0
SHAPE = Qwen3Config(
    vocab_size=64_000,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=18,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=64,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)


class NoClaims:
    """What the weights ask of the claim loop, where requests come from here instead of Redis."""

    draining = False

    async def wait_until_recorded(self) -> None: ...

    async def restart_lost(self, lost: object) -> int:
        return 0


def make_config(folder: Path) -> RunConfig:
    return parse_run_config(
        {
            "run": "pause",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "bfloat16", "max_length": 512},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 448,
            },
            "generator": {"slots": 16, "tensor_parallel": WORKERS},
            "weights": {"coalesce_seconds": 0.0, "stage": "host"},
            "rpc": {"port": free_port("127.0.0.1")},
        },
        source="benchmark",
    )


def write_model(folder: Path) -> None:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SHAPE, dtype=torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder)


def specs_of(weights: Path) -> list[TensorSpec]:
    with safe_open(weights, framework="pt") as file:
        return [
            TensorSpec(name, "bfloat16", tuple(file.get_slice(name).get_shape()))
            for name in file.keys()  # noqa: SIM118  # no dictionary
        ]


def fill(weights: Path, snapshot: Snapshot) -> None:
    with safe_open(weights, framework="pt") as file:
        for name, rows in snapshot.views():
            rows.copy_(file.get_tensor(name))


async def publish_some(
    config: RunConfig, engine: Engine, weights: Path, repeats: int, copies: PlainCopies
) -> list[dict[str, float]]:
    """Seconds for each version: the pause, the loading in it, and plain copies right after it."""
    specs, exporter = specs_of(weights), Exporter("benchmark")
    slots = StagingSlots(plan_buckets(specs, config.weights.bucket_bytes))
    publisher = Publisher(
        weights=config.weights,
        rpc=config.rpc,
        incarnation=1,
        history=(),
        lm_head=config.recipe.lm_head,
        specs=specs,
        device=CPU,
        exporter=exporter,
        on_removed=lambda generator, reason: None,
        slots=slots,
    )
    publisher.start()
    claims: Any = NoClaims()
    pauses: list[dict[str, float]] = []
    applied = asyncio.Event()

    class Watched(GeneratorWeights):
        async def apply(self, version: PolicyVersion) -> float:
            pause = await super().apply(version)
            pauses.append({"pause": pause, "load": engine.load_seconds})
            applied.set()
            return pause

    member = WeightMember(
        engine=Watched("a", engine, claims, exporter),
        name="a",
        num_workers=engine.num_receivers,
        slots=ROLLOUTS,
        lm_head=config.recipe.lm_head,
        rpc=config.rpc,
        weights=config.weights,
        exporter=exporter,
    )
    running = asyncio.create_task(member.run())
    for step in range(repeats + 1):
        version, slot = PolicyVersion(1, step), publisher.stage()
        await asyncio.to_thread(slots.fill, slot, version, PATIENCE_SECONDS, partial(fill, weights))
        requests = [
            EngineRequest(list(range(3, 40)), MAX_TOKENS, Sampling(), seed, str)
            for seed in range(ROLLOUTS * bool(step))
        ]
        sampling = [asyncio.create_task(engine.sample(request)) for request in requests]
        await asyncio.sleep(1.0)
        publisher.publish(slot, version)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await applied.wait()
        applied.clear()
        for request in requests:
            engine.abort(request)
        await asyncio.gather(*sampling)
        await asyncio.sleep(IDLE_SECONDS)
        pauses[-1]["copy"] = copies.seconds()
    await member.leave("end", 5.0)
    await asyncio.wait_for(running, 10.0)
    publisher.stop(5.0)
    return pauses[1:]  # the first one, which a skeleton waits for, maps the memory


class PlainCopies:
    """WORKERS processes that copy as many bytes as a worker holds, each when all do."""

    def __init__(self, num_bytes: int) -> None:
        context = multiprocessing.get_context("spawn")
        together = context.Barrier(WORKERS)
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(WORKERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=_copy, args=(theirs, together, num_bytes), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        self.seconds()

    def seconds(self) -> float:
        """Seconds of the slowest copy."""
        for pipe in self._pipes:
            pipe.send("now")
        assert all(pipe.poll(PATIENCE_SECONDS) for pipe in self._pipes)
        return max(float(pipe.recv()) for pipe in self._pipes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join(PATIENCE_SECONDS)


def _copy(pipe: Connection, together: Barrier, num_bytes: int) -> None:
    torch.set_num_threads(1)
    source, target = (
        torch.ones(num_bytes, dtype=torch.uint8),
        torch.ones(num_bytes, dtype=torch.uint8),
    )
    while True:
        pipe.recv()
        together.wait(PATIENCE_SECONDS)
        started = time.perf_counter()
        target.copy_(source)
        pipe.send(time.perf_counter() - started)


async def measure(repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model")
        config = make_config(folder)
        engine_start.set_environment(config.generator)
        engine = await Engine.start(config, "a")
        try:
            weights = folder / "model" / "model.safetensors"
            held = max(size for _, size in await engine.call("room_for_staging"))
            copies = PlainCopies(held)
            try:
                pauses = await publish_some(config, engine, weights, repeats, copies)
            finally:
                copies.end()
        finally:
            engine.shutdown()
        size = total_bytes(plan_buckets(specs_of(weights), config.weights.bucket_bytes))
    copied = statistics.median(each["copy"] for each in pauses)
    pause = statistics.median(each["pause"] for each in pauses)
    return {
        "megabytes": round(size / 1e6, 1),
        "workers": WORKERS,
        "megabytes_of_a_worker": round(held / 1e6, 1),
        "versions": len(pauses),
        "pause_seconds": [round(each["pause"], 4) for each in pauses],
        "pause_seconds_median": round(pause, 4),
        "load_seconds_median": round(statistics.median(each["load"] for each in pauses), 4),
        "copy_seconds": [round(each["copy"], 4) for each in pauses],
        "copy_seconds_median": round(copied, 4),
        "pause_over_copy": round(pause / copied, 2),
        "pause_over_load": round(pause / statistics.median(each["load"] for each in pauses), 2),
    }
