"""Publishing time, bandwidth and recovery times of wire 2, between processes of one machine:
lab/results/weights.json.

    python -m lab.weights [PART ...] [--megabytes 3.3 584] [--repeats 20]

The generators are those of the tests: the real member and receiver around an engine that only
copies tensors. `publish` runs from the call of publish() to the last acknowledgement, the
receiver's checksum and the copy into the engine included. The sender's is taken before, when the
version is staged. Timeouts are the defaults of the configuration. `lanes`: publishing and raw gloo
in the same run; a target for two and four ranks. `pause`: the pause of a real vLLM generator and
plain copies, the other target.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lab.weights import engine
from lab.weights.lanes import OtherRanks, RawGloo, copy_seconds, fill
from rollcast.config.connections import Rpc, Weights
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets, total_bytes
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.sender.lanes import ONE_LANE, Lanes
from rollcast.weights.sender.publisher import Publisher
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.record import LAB_RESULTS, write_result
from testkit.weights import generator_process

DEADLINE_SECONDS = 120.0
LEAST_RATE = 0.8
"""Least share of raw gloo's rate."""
SETTINGS = Weights(coalesce_seconds=0.0)


class Generator:
    """One generator process; its events arrive in `events`."""

    def __init__(self, name: str, port: int, **settings: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        rpc = {"port": port}
        arguments = {
            "name": name,
            "rpc": rpc,
            "weights": SETTINGS.model_dump(),
            "verify": False,
            **settings,
        }
        self.process = context.Process(
            target=generator_process.run, args=(theirs, arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def _read(self) -> None:
        try:
            while True:
                self.events.append(self._pipe.recv())
        except (EOFError, ConnectionError):
            return


def wait_for(condition: Callable[[], bool]) -> float:
    """Seconds until `condition` holds."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > DEADLINE_SECONDS:
            raise TimeoutError("the benchmark waited in vain")
        time.sleep(0.001)
    return time.perf_counter() - started


def tensor_specs(megabytes: float) -> list[TensorSpec]:
    tensors = 50
    return [
        TensorSpec(f"layer.{i}.weight", "bfloat16", (int(megabytes * 1e6 / 2 / tensors),))
        for i in range(tensors)
    ]


def open_publisher(
    megabytes: float, *, port: int = 0, incarnation: int = 1, lanes: Lanes = ONE_LANE
) -> tuple[Publisher, StagingSlots, int]:
    specs = tensor_specs(megabytes)
    slots = StagingSlots(shard_buckets(plan_buckets(specs, SETTINGS.bucket_bytes), 0, lanes.count))
    publisher = Publisher(
        weights=SETTINGS,
        rpc=Rpc(port=port),
        incarnation=incarnation,
        history=[],
        lm_head="fp32",
        specs=specs,
        device=torch.device("cpu"),
        exporter=Exporter("benchmark"),
        on_removed=lambda name, reason: None,
        slots=slots,
        lanes=lanes,
    )
    return publisher, slots, publisher.start()


def publish(publisher: Publisher, slots: StagingSlots, step: int, *, incarnation: int = 1) -> float:
    """Returns for how long the caller, which would be training, was held up."""
    version, started = PolicyVersion(incarnation, step), time.perf_counter()
    slot = publisher.stage()
    slots.wait_for_readers(SETTINGS.bucket_timeout_seconds)
    held_up = time.perf_counter() - started
    slots.fill(slot, version, 0.0, partial(fill, step=step))
    started = time.perf_counter()
    publisher.publish(slot, version)
    return held_up + time.perf_counter() - started


def joined(publisher: Publisher) -> int:
    return sum(member.joined for member in publisher.members())


def measure_publishing(megabytes: float, generators: int, repeats: int) -> dict[str, Any]:
    publisher, slots, port = open_publisher(megabytes)
    publish(publisher, slots, 0)
    crowd = [Generator(f"g{index}", port) for index in range(generators)]
    try:
        wait_for(lambda: joined(publisher) == generators)
        seconds, held_up = [], []
        for step in range(1, repeats + 1):
            held_up.append(publish(publisher, slots, step))
            started = time.perf_counter()
            assert publisher.wait_acknowledged(step, DEADLINE_SECONDS)
            seconds.append(time.perf_counter() - started)
        pauses = [
            event["pause"]
            for generator in crowd
            for event in generator.events
            if event["event"] == "applied"
        ]
        size = total_bytes(slots[0].specs)
        median = statistics.median(seconds)
        return {
            "megabytes": round(size / 1e6, 1),
            "generators": generators,
            "publish_seconds_median": round(median, 4),
            "publish_seconds_worst": round(max(seconds), 4),
            "bandwidth_gigabytes_per_second": round(size * generators / median / 1e9, 2),
            "apply_copy_seconds_median": round(statistics.median(pauses[generators:]), 5),
            "learner_held_up_seconds_median": round(statistics.median(held_up), 6),
        }
    finally:
        end(publisher, crowd)


def measure_lanes(megabytes: float, world_size: int, repeats: int) -> dict[str, Any]:
    """Several trainer ranks and one generator, in turns with raw gloo."""
    size = int(megabytes * 1e6)
    ranks = OtherRanks(plan_buckets(tensor_specs(megabytes), SETTINGS.bucket_bytes), world_size)
    publisher, slots, port = open_publisher(megabytes, lanes=ranks.lanes)
    ranks.fill(publisher.stage(), PolicyVersion(1, 0))
    publish(publisher, slots, 0)
    crowd, bare = [Generator("g", port)], RawGloo(size, SETTINGS)
    try:
        wait_for(lambda: joined(publisher) == 1)
        seconds, raw = [], []
        for step in range(1, repeats + 1):
            ranks.fill(publisher.stage(), PolicyVersion(1, step))
            publish(publisher, slots, step)
            started = time.perf_counter()
            assert publisher.wait_acknowledged(step, DEADLINE_SECONDS)
            seconds.append(time.perf_counter() - started)
            raw.append(bare.seconds())
        events = [event for event in crowd[0].events if event["event"] == "applied"][1:]
        pause, copied = (
            statistics.median(event["pause"] for event in events),
            copy_seconds(size, repeats),
        )
        received = statistics.median(seconds) - pause
        rate = statistics.median(raw) / received
        return {
            "megabytes": megabytes,
            "ranks": world_size,
            "receive_seconds_median": round(received, 4),
            "raw_gloo_seconds_median": round(statistics.median(raw), 4),
            "raw_gloo_seconds_range": [round(min(raw), 4), round(max(raw), 4)],
            "rate_over_raw_gloo": round(rate, 3),
            "pause_seconds_median": round(pause, 4),
            "pause_over_copy": round(pause / copied, 2),
        }
    finally:
        bare.end()
        end(publisher, crowd)
        ranks.end()


def measure_joining(megabytes: float) -> dict[str, Any]:
    """Seconds from the announcement to membership, with the catch-up and without the process's own
    start.
    """
    publisher, slots, port = open_publisher(megabytes)
    publish(publisher, slots, 0)
    crowd = [Generator("first", port)]
    try:
        wait_for(lambda: joined(publisher) == 1)
        crowd.append(Generator("second", port))
        wait_for(lambda: len(publisher.members()) == 2)
        return {
            "megabytes": megabytes,
            "join_seconds": round(wait_for(lambda: joined(publisher) == 2), 3),
        }
    finally:
        end(publisher, crowd)


def measure_recovery(megabytes: float, number: signal.Signals) -> dict[str, Any]:
    """Seconds from the signal, in mid-broadcast, to the acknowledgement of the other two."""
    publisher, slots, port = open_publisher(megabytes)
    publish(publisher, slots, 0)
    crowd = [
        Generator("victim", port, slow_seconds=0.05),
        Generator("one", port),
        Generator("two", port),
    ]
    victim = crowd[0]
    try:
        wait_for(lambda: joined(publisher) == 3)
        seen = len([event for event in victim.events if event["event"] == "bucket"])
        publish(publisher, slots, 1)
        wait_for(
            lambda: len([event for event in victim.events if event["event"] == "bucket"]) > seen + 1
        )
        victim.send(number)
        seconds = wait_for(lambda: publisher.wait_acknowledged(1, 0.0))
        return {
            "megabytes": megabytes,
            "signal": number.name,
            "recovery_seconds": round(seconds, 2),
        }
    finally:
        end(publisher, crowd)


def measure_reconnecting(
    megabytes: float, away_seconds: float, generators: int = 4
) -> dict[str, Any]:
    """The trainer goes away and comes back on the same port: from there to the last announcement,
    and membership.
    """
    publisher, slots, port = open_publisher(megabytes)
    publish(publisher, slots, 0)
    crowd = [Generator(f"g{index}", port) for index in range(generators)]
    try:
        wait_for(lambda: joined(publisher) == generators)
        publisher.stop(10.0)
        time.sleep(away_seconds)
        publisher, slots, _ = open_publisher(megabytes, port=port, incarnation=2)
        publish(publisher, slots, 0, incarnation=2)
        announced = wait_for(lambda: len(publisher.members()) == generators)
        return {
            "generators": generators,
            "away_seconds": away_seconds,
            "announced_seconds": round(announced, 2),
            "joined_seconds": round(
                announced + wait_for(lambda: joined(publisher) == generators), 2
            ),
        }
    finally:
        end(publisher, crowd)


def end(publisher: Publisher, crowd: list[Generator]) -> None:
    for generator in crowd:
        generator.process.kill()
        generator.process.join()
    publisher.stop(10.0)


PARTS = ("publishing", "lanes", "pause", "joining", "recovery", "reconnecting")


def measure(part: str, sizes: list[float], repeats: int) -> Any:
    largest = max(sizes)
    if part == "publishing":
        return [measure_publishing(size, n, repeats) for size in sizes for n in (1, 2)]
    if part == "lanes":
        return [measure_lanes(largest, ranks, repeats) for ranks in (1, 2, 4)]
    if part == "pause":
        return asyncio.run(engine.measure(repeats))
    if part == "joining":
        return [measure_joining(size) for size in sizes]
    if part == "recovery":
        return [measure_recovery(largest, number) for number in (signal.SIGKILL, signal.SIGSTOP)]
    return [measure_reconnecting(min(sizes), away) for away in (1.0, 10.0, 30.0, 60.0)]


def targets(figures: dict[str, Any]) -> dict[str, bool]:
    rates = [row["rate_over_raw_gloo"] for row in figures["lanes"] if row["ranks"] > 1]
    return {
        f"rate at least {LEAST_RATE} of raw gloo, two and four ranks": min(rates) >= LEAST_RATE,
        f"pause at most {engine.LONGEST_PAUSE} of the copy": figures["pause"]["pause_over_copy"]
        <= engine.LONGEST_PAUSE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)}; default all; the others stay"
    )
    parser.add_argument("--megabytes", type=float, nargs="+", default=[3.3, 584.0])
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = LAB_RESULTS / "weights.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    for part in arguments.parts or PARTS:
        load = os.getloadavg()[0]
        figures[part] = measure(part, arguments.megabytes, arguments.repeats)
        print(part, json.dumps(figures[part]), flush=True)
        figures.setdefault("load", {})[part] = [load, os.getloadavg()[0]]
    figures["targets"] = targets(figures) if {"lanes", "pause"} <= figures.keys() else {}
    print(write_result("weights", figures, LAB_RESULTS), figures["targets"])


if __name__ == "__main__":
    main()
