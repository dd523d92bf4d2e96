"""One run under its faults, from its start to the verdict over its files."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import httpx
import psutil
from redis import RedisError

from rollcast.connections.port_files import port_file, read_port
from testkit.chaos.checker import (
    LastPage,
    check_run,
    given_up,
    read_outcomes,
    redone_after_outages,
)
from testkit.chaos.effect import Effect
from testkit.chaos.faults import GENERATORS, NETWORK, REDIS_FILE, REDIS_REFUSES, Fault
from testkit.chaos.fleet import Fleet, HangError
from testkit.chaos.other_faults import fill_disk, strike_network, terminate_in_phase
from testkit.chaos.process_faults import strike_process
from testkit.chaos.redis_faults import strike_redis
from testkit.chaos.rough_episodes import EpisodeBooks
from testkit.chaos.run_kinds import LAG
from testkit.chaos.schedule import PlannedRun
from testkit.chaos.up_fleet import UP, UpFleet
from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import read_lines

ATTEMPTS = 3
"""A fault without effect is made again this often; then it is reported as not made."""
STEPS_BETWEEN_FAULTS = 2
"""Steps with both generators after a fault: one that had begun before it, and a whole one."""
LAST_STEPS = LAG + 3
"""Steps after the last fault, in which everything that was open before it must be settled."""


def strike(fleet: Fleet, fault: Fault) -> Effect:
    if fault.phase:
        return terminate_in_phase(fleet, fault)
    if fault.kind in NETWORK:
        return strike_network(fleet, fault)
    if fault.kind in (*REDIS_REFUSES, *REDIS_FILE):
        return strike_redis(fleet, fault)
    if fault.kind == "full disk":
        return fill_disk(fleet, fault)
    return strike_process(fleet, fault)


def run_part(
    plan: PlannedRun, folder: Path, programs: ForkedPrograms, minutes: float
) -> dict[str, Any]:
    """Its record. Faults for which `minutes` leave no time are reported as not made."""
    began = time.monotonic()
    made: list[dict[str, Any]] = []
    record: dict[str, Any] = {"run": plan.name, "kind": plan.kind, "faults": made, "hang": None}
    fleet = UpFleet(folder, programs) if plan.kind == UP else Fleet(plan.kind, folder, programs)
    try:
        with fleet:
            try:
                _make_all(fleet, plan, made, began + 60.0 * minutes, record)
            except (HangError, AssertionError):
                # The run is over: after a hang it says nothing about later faults
                size = (fleet.run_folder / "tasks.jsonl").stat().st_size
                with suppress(AssertionError, LookupError, ValueError):
                    record |= _judge(fleet, made, LastPage("", size, time.time()))
                raise
            finally:
                _keep_books(fleet)
    except (HangError, AssertionError, OSError, SubprocessError) as error:
        record["hang" if isinstance(error, HangError) else "failed"] = str(error)[:2000]
    record["not made"] = [fault.name for fault in plan.faults[len(made) :]]
    record["ends"] = fleet.ends
    record["seconds"] = round(time.monotonic() - began, 1)
    return record


def _make_all(
    fleet: Fleet,
    plan: PlannedRun,
    made: list[dict[str, Any]],
    deadline: float,
    record: dict[str, Any],
) -> None:
    """Every fault until the deadline, then the end of the run and the verdict over its files."""
    books = EpisodeBooks(fleet.system, fleet.mark) if plan.kind == "class" else None
    for fault in plan.faults:
        if time.monotonic() > deadline:
            break
        if books is not None:
            books.note_fork_servers()
        _make(fleet, fault, made)
    if books is not None:
        with suppress(HangError):  # reported as kinds that were not seen
            fleet.wait(lambda: not books.kinds_not_seen(), "each kind of failure", 120.0)
        books.note_fork_servers()
    end = fleet.system.last_step + LAST_STEPS
    fleet.wait(lambda: fleet.works(end), f"step {end}")
    record |= _judge(fleet, made, _stop_trainer(fleet))
    if books is not None:
        for name in GENERATORS:
            fleet.system.terminate(name)
        record["episodes"] = books.finish()


def _keep_books(fleet: Fleet) -> None:
    """The run folder's disk goes with the run."""
    for file in fleet.run_folder.glob("*.jsonl"):
        shutil.copy(file, fleet.folder / file.name)


def _make(fleet: Fleet, fault: Fault, made: list[dict[str, Any]]) -> None:
    """Strike until it took effect, wait until the run works again, and add an entry."""
    entry: dict[str, Any] = {"kind": fault.kind, "target": fault.target, "phase": fault.phase}
    entry |= {"lasts": fault.seconds, "attempts": 0, "took": False, "began": time.time()}
    made.append(entry)
    while not entry["took"] and entry["attempts"] < ATTEMPTS:
        entry["attempts"] += 1
        step = fleet.system.last_step
        try:
            effect = strike(fleet, fault)
        except (AssertionError, RedisError, psutil.Error) as error:
            # No task was held, no server came, or a process was gone
            effect = Effect(False, str(error)[:200])
        finally:
            entry["ended"] = time.time()
        entry |= {
            "took": effect.took,
            "evidence": effect.evidence,
            "held": effect.held,
            "measured": {name: round(value, 2) for name, value in effect.seconds.items()},
        }
        wanted = step + STEPS_BETWEEN_FAULTS
        fleet.wait(partial(fleet.works, wanted), f"step {wanted} after {fault.name}")
        entry["recovered_seconds"] = round(time.time() - entry["ended"], 1)
        fleet.forget_expected_ends()
    print(json.dumps(entry), flush=True)


def _stop_trainer(fleet: Fleet) -> LastPage:
    """End the trainer in order. Its page is read while nothing is added to tasks.jsonl."""
    file = fleet.run_folder / "tasks.jsonl"
    for _ in range(200):
        size = file.stat().st_size
        page = LastPage(_read_page(fleet), size, time.time())
        if page.text and size == file.stat().st_size:
            break
        time.sleep(0.05)
    fleet.held_down |= {*fleet.system.processes}
    name = UP if fleet.kind == UP else "trainer"
    process = fleet.find(UP if fleet.kind == UP else "trainer 0")
    if process is not None:
        process.terminate()
        # A checkpoint of a tiny model is written; `up` ends every service
        fleet.system.processes[name].wait(120)
    return page


def _read_page(fleet: Fleet) -> str:
    with suppress(httpx.HTTPError, OSError, ValueError):
        port = read_port(port_file(fleet.run_folder, "trainer"))
        return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5.0).text
    return ""


def _judge(fleet: Fleet, made: list[dict[str, Any]], page: LastPage) -> dict[str, Any]:
    folder = fleet.run_folder
    lines = read_lines(folder / "tasks.jsonl")
    faults = [(entry["began"], entry["ended"]) for entry in made]
    violations = check_run(folder, page, faults, lag=LAG)
    ages = [
        int(age) for line in read_lines(folder / "steps.jsonl") for age in line["staleness_tokens"]
    ]
    held = [task for entry in made for task in entry.get("held", ())]
    return {
        "violations": violations.as_dict(),
        "steps": fleet.system.last_step,
        "outcomes": read_outcomes(folder),
        "max_staleness": max(ages, default=0),
        "given_up": given_up(lines, held),
        "trainer_outages": redone_after_outages(lines),
    }
