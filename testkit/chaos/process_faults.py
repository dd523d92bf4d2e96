"""Processes are killed, stopped for a while, slowed down or asked to end."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import psutil

from testkit.chaos.claims import ClaimWatch
from testkit.chaos.effect import Effect
from testkit.chaos.faults import GENERATORS, HEARTBEAT_SECONDS, Fault
from testkit.chaos.fleet import Fleet, HangError
from testkit.chaos.redis_faults import seconds_until_work_goes_on
from testkit.system.faults import count_joined, stop_holding_tasks

END_SECONDS = 60.0
"""Deadline of an end after SIGTERM: a checkpoint is written, groups are handed back."""
SLOW_SHARE = 0.05
"""A twentieth of the time: the generator becomes 20 times slower."""


def strike_process(fleet: Fleet, fault: Fault) -> Effect:
    try:
        # Environments and harnesses live for seconds each: one is there within a minute
        process = fleet.wait(lambda: fleet.find(fault.target), fault.target, 60.0)
    except HangError:
        return Effect(False, "there was no such process")
    owner = fleet.owner(fault.target)
    # The claims of `up` are behind a password of its own
    has_claims = fault.target.split()[0] in GENERATORS and fleet.kind != "up"
    match fault.kind:
        case "kill" | "stop" if has_claims:
            return _lose_generator(fleet, fault)
        case "kill":
            fleet.expect_end(owner)
            process.kill()
            effect = Effect(_wait_end(process), "it ended by SIGKILL")
        case "stop":
            effect = _stop(fleet, process, fault.seconds)
        case "terminate":
            effect = terminate(fleet, process, owner)
        case _:
            return _slow_down(fleet, process, fault)
    if fault.target == "redis" and fleet.kind != "up":
        effect.seconds["Redis back"] = seconds_until_work_goes_on(fleet)
    return effect


def terminate(fleet: Fleet, process: psutil.Process, owner: str) -> Effect:
    fleet.expect_end(owner)
    process.terminate()
    return Effect(_wait_end(process), "it ended after SIGTERM")


def _lose_generator(fleet: Fleet, fault: Fault) -> Effect:
    """Its front end or its engine is struck at a moment when it has tasks."""
    owner = fleet.owner(fault.target)
    held = sorted(stop_holding_tasks(fleet.system, owner))
    watch = ClaimWatch(fleet, held, owner)
    process = fleet.find(fault.target)
    if process is None:
        fleet.system.signal(owner, signal.SIGCONT)
        return Effect(False, "its process was gone")
    family = psutil.Process(fleet.system.processes[owner].pid)
    others = [one for one in (family, *family.children(recursive=True)) if one != process]
    watch.start()
    if fault.kind == "kill":
        fleet.expect_end(owner)
        process.kill()
        _resume(others)
        effect = Effect(_wait_end(process), f"{len(held)} tasks were held", held)
        # Meanwhile the generator comes back, as it would
        fleet.wait(lambda: not watch.is_alive(), "an end of the watch")
        name = "killed: tasks claimed"
    else:
        # Later it may be gone: a generator whose engine is frozen ends itself, and that engine
        is_stopped = process.status() == psutil.STATUS_STOPPED
        _resume(others)
        fleet.sleep(fault.seconds)
        # A fenced generator ends itself or comes back as another one
        fleet.expect_end(owner)
        joined = count_joined(fleet.system)
        _resume([process])
        effect = Effect(is_stopped, f"{len(held)} tasks were held", held)
        name = "frozen: tasks claimed"
        if fault.seconds <= HEARTBEAT_SECONDS or joined == len(GENERATORS):
            return effect  # it may keep its tasks
        fleet.wait(lambda: not watch.is_alive(), "an end of the watch")
    if watch.seconds is not None:
        effect.seconds[name] = watch.seconds
    return effect


def _stop(fleet: Fleet, process: psutil.Process, seconds: float) -> Effect:
    try:
        process.suspend()
        # All of its threads are stopped a moment later
        time.sleep(0.2)
        is_stopped = process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return Effect(False, "it ended before")
    fleet.sleep(seconds)
    _resume([process])
    return Effect(is_stopped, f"it was stopped for {seconds:.1f} s")


def _slow_down(fleet: Fleet, process: psutil.Process, fault: Fault) -> Effect:
    family = [process, *process.children(recursive=True)]
    deadline = time.monotonic() + fault.seconds
    while time.monotonic() < deadline:
        # Ten times a second, so that no deadline takes a pause for a frozen process
        for one in family:
            with suppress(psutil.Error):
                one.suspend()
        time.sleep(0.1 * (1.0 - SLOW_SHARE))
        _resume(family)
        time.sleep(0.1 * SLOW_SHARE)
        fleet.tick()
    # It may have been fenced, and comes back as another one
    fleet.expect_end(fault.target)
    return Effect(process.is_running(), f"it ran {SLOW_SHARE:.0%} of the time")


def _resume(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.resume()


def _wait_end(process: psutil.Process) -> bool:
    """Whether it has ended within the deadline; one that no parent has read yet has."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)
                continue
        return True
    return False
