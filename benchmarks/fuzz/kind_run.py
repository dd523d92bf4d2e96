"""Workers for one kind, one after another: each that ends early is a finding, and the next one goes
on behind the input that ended it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.fuzz.state import NO_INPUT, State, now_file
from testkit.fuzz.targets.lookup import find_target
from testkit.record import ROOT

STILL_SECONDS = 300.0
"""An input that takes as long waits for something: a busy machine takes a tenth of it."""
COVERED_INPUTS = 300


def run_kind(folder: Path, kind: str, seed: int, last: int, deadline: float) -> State:
    """Try the inputs below `last`, or as many as there is time for. `deadline`: monotonic."""
    now = now_file(folder, kind)
    while True:
        state = State.read(folder, kind, seed)
        if state.next >= last or time.monotonic() >= deadline:
            return state
        now.write_bytes(NO_INPUT)
        arguments = [kind, str(folder), str(seed), str(last), str(COVERED_INPUTS)]
        with (folder / f"{kind}.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fuzz.worker", *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        why = _watch(worker, now, deadline)
        if why is None:
            continue
        if now.read_bytes() == NO_INPUT:
            text = (folder / f"{kind}.log").read_text(errors="replace")[-2_000:]
            raise SystemExit(f"{kind}: its worker {why} without an input\n{text}")
        number = int.from_bytes(now.read_bytes(), "little")
        state = State.read(folder, kind, seed)
        target = find_target(kind)
        state.note_killer(number, why, target.make_mutant(target.seeds, seed, number))
        state.write()


def _watch(worker: subprocess.Popen[bytes], now: Path, deadline: float) -> str | None:
    """How the worker ended; None = all went well, or time is over."""
    last_content = b""
    changed_at = time.monotonic()
    while worker.poll() is None:
        time.sleep(0.2)
        content = now.read_bytes()
        if content != last_content:
            last_content = content
            changed_at = time.monotonic()
        is_over = time.monotonic() > deadline
        is_still = time.monotonic() - changed_at > STILL_SECONDS
        if is_over or is_still:
            worker.kill()
            worker.wait()
            return None if is_over else "waited for something"
    if worker.returncode == 0:
        return None
    if worker.returncode == -signal.SIGPROF:
        return "took 30 s of processor time"
    code = worker.returncode
    return f"ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
