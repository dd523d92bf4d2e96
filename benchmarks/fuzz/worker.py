"""python -m benchmarks.fuzz.worker KIND FOLDER SEED LAST COVERED: inputs of one kind, up to LAST.

It continues after the last input in the state of its kind, and writes the state every second. If a
hang, a lack of memory or a crash ends this process, the caller finds the number of the input in
KIND.now.
"""

from __future__ import annotations

import contextlib
import gc
import io
import mmap
import resource
import signal
import sys
import time
from itertools import chain
from pathlib import Path

from benchmarks.fuzz.line_coverage import LineCoverage
from benchmarks.fuzz.state import NO_INPUT, NUMBER_BYTES, State, now_file
from testkit.fuzz.outcome import try_input
from testkit.fuzz.target import Target
from testkit.fuzz.targets.lookup import find_target

ADDRESS_BYTES = 3 << 29
"""More addresses than the process had when its target was loaded: 1.5 GiB."""
CPU_SECONDS = 30.0
"""Processor time after which an input is a hang. The signal ends the process, whatever it does."""


def main() -> None:
    kind, folder, seed, last, covered = sys.argv[1:]
    state = State.read(Path(folder), kind, int(seed))
    target = find_target(kind)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        seeds = target.seeds
        for content in seeds:
            if try_input(target, content) is not None:
                sys.exit(f"{kind}: a seed is a finding; run tests/fuzz/test_crashers.py")
        _bound_memory()
        _run(target, seeds, state, min(int(last), int(covered)))
        if state.coverage is None:
            state.coverage = _measure_coverage(target, seeds, state, int(covered))
            state.write()
        _run(target, seeds, state, int(last))


def _measure_coverage(
    target: Target, seeds: list[bytes], state: State, covered: int
) -> dict[str, float]:
    """The lines that the seeds and the first inputs reach.

    Tracing makes an input ten times as long, so not those of all inputs.
    """
    coverage = LineCoverage(target.modules)
    numbers = (number for number in range(min(covered, state.next)) if number not in state.killers)
    mutants = (_make_mutant(target, seeds, state.seed, number) for number in numbers)
    deadline = time.process_time() + 120.0
    for content in filter(None, chain(seeds, mutants)):
        with coverage, contextlib.suppress(BaseException):
            target.read(content)
        if time.process_time() > deadline:
            break
    return coverage.shares()


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    gc.collect()
    gc.freeze()  # no collection goes through all modules again


def _run(target: Target, seeds: list[bytes], state: State, last: int) -> None:
    killers = set(state.killers)
    written_at = time.monotonic()
    with now_file(state.folder, state.kind).open("r+b") as file:
        now = mmap.mmap(file.fileno(), NUMBER_BYTES)
    for number in range(state.next, last):
        now[:] = number.to_bytes(NUMBER_BYTES, "little")
        if number not in killers:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            _try_number(target, seeds, state, number)
        state.next = number + 1
        if time.monotonic() - written_at > 1.0:
            state.write()
            written_at = time.monotonic()
    now[:] = NO_INPUT
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    state.write()


def _make_mutant(target: Target, seeds: list[bytes], seed: int, number: int) -> bytes | None:
    """None if it is larger than any boundary accepts, or does not fit into memory."""
    try:
        content = target.make_mutant(seeds, seed, number)
    except MemoryError:
        return None
    return content if len(content) <= 16 << 20 else None


def _try_number(target: Target, seeds: list[bytes], state: State, number: int) -> None:
    content = _make_mutant(target, seeds, state.seed, number)
    if content is None:
        return
    began = time.process_time()
    finding = try_input(target, content)
    state.seconds += time.process_time() - began
    state.longest_seconds = max(state.longest_seconds, time.process_time() - began)
    state.counted += target.passes(content)
    if finding is not None:
        state.note(finding, number, content)


if __name__ == "__main__":
    main()
