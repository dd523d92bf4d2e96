"""Redis refuses writes, or comes back with a file that lacks its end or has wrong bytes in it."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import redis

from rollcast.local.ports import free_port
from testkit.chaos.effect import Effect
from testkit.chaos.faults import REDIS_FILE, Fault
from testkit.chaos.fleet import Fleet

LOST_BYTES = 2_000
"""Bytes that a truncated file lacks: some of the last commands of a busy second."""
DAMAGED_BYTES = 64


def seconds_until_work_goes_on(fleet: Fleet) -> float:
    """Seconds between an answer of Redis and the trainer's next line about tasks."""
    fleet.wait(lambda: _answers(fleet), "an answer of Redis")
    began = time.monotonic()
    file = fleet.run_folder / "tasks.jsonl"
    size = file.stat().st_size
    fleet.wait(lambda: file.stat().st_size > size, "a task's next line after Redis was back")
    return time.monotonic() - began


def _answers(fleet: Fleet) -> bool:
    with suppress(redis.RedisError), fleet.redis() as client:
        return bool(client.ping())
    return False


def strike_redis(fleet: Fleet, fault: Fault) -> Effect:
    effect = _damage_file(fleet, fault) if fault.kind in REDIS_FILE else _refuse(fleet, fault)
    effect.seconds["Redis back"] = seconds_until_work_goes_on(fleet)
    return effect


def _refuse(fleet: Fleet, fault: Fault) -> Effect:
    """Every write is answered with an error for a while."""
    snapshot = fleet.folder / "redis" / "dump.rdb"
    with fleet.redis() as client:
        before = _refusals(client, fault.kind)
        match fault.kind:
            case "OOM":
                client.config_set("maxmemory", "1mb")
            case "READONLY":
                # A replica of a server that is not there
                client.replicaof("127.0.0.1", free_port("127.0.0.1"))
            case _:
                # A folder in the snapshot's place: saving fails, and writes are refused
                with suppress(FileNotFoundError):
                    snapshot.unlink()
                snapshot.mkdir()
                client.config_set("save", "3600 1")
                client.bgsave(schedule=True)
        fleet.sleep(fault.seconds)
        refused = _refusals(client, fault.kind) - before
        match fault.kind:
            case "OOM":
                client.config_set("maxmemory", "0")
            case "READONLY":
                client.replicaof("NO", "ONE")
            case _:
                snapshot.rmdir()
                client.config_set("save", "")
                client.bgsave(schedule=True)
    return Effect(refused > 0, f"{refused} commands were refused with {fault.kind}")


def _refusals(client: redis.Redis, error: str) -> int:
    statistics = client.info("errorstats").get(f"errorstat_{error}", {})
    return int(statistics.get("count", 0)) if isinstance(statistics, dict) else 0


def _damage_file(fleet: Fleet, fault: Fault) -> Effect:
    """While Redis is down its append-only file loses its end, or gets wrong bytes."""
    data = fleet.folder / "redis"
    log = fleet.folder / "redis.log"
    chance = random.Random(fault.seconds)
    with fleet.holding_down("redis"):
        fleet.system.signal("redis", signal.SIGKILL)
        fleet.system.processes["redis"].wait(20)
        file = max(data.glob("**/*.aof"), key=lambda path: path.stat().st_size)
        size = file.stat().st_size
        if size < 2 * LOST_BYTES:
            fleet.system.start_redis()
            return Effect(False, "its file is nearly empty")
        with file.open("r+b") as opened:
            if fault.kind == "file truncated":
                opened.truncate(size - chance.randint(1, LOST_BYTES))
            else:
                # Near the end, so that most of the history is still there
                opened.seek(size - LOST_BYTES)
                opened.write(chance.randbytes(DAMAGED_BYTES))
        fleet.sleep(fault.seconds)
        num_logged = log.stat().st_size
        try:
            fleet.system.start_redis()
        except AssertionError:  # refuses a damaged file, until it is repaired as Redis says
            fleet.system.stopped_services.add("redis")
            _repair(file)
            fleet.system.start_redis()
    text = log.read_text(errors="replace")[num_logged:].lower()
    evidence = [word for word in ("truncated", "bad file format", "unexpected end") if word in text]
    return Effect(bool(evidence), f"Redis said: {', '.join(evidence) or 'nothing'}")


def _repair(file: Path) -> None:
    program = shutil.which("redis-check-aof")
    if program is None:
        # What the program does: the file ends before the damage
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size - 2 * LOST_BYTES)
        return
    subprocess.run([program, "--fix", str(file)], input=b"y\n", capture_output=True, check=False)
