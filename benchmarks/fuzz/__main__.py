"""Does any input make a parser raise an unexpected error, hang, or take too much memory?

    python -m benchmarks.fuzz [--inputs N] [--kind K ...] [--seed S] [--minutes M] [--folder F]

Each kind of testkit/fuzz/targets changes valid inputs and gives them to the product's own function.
An input is fine if it is read, or refused by the error that the function documents, within a
second of processor time and a second for each MiB, and within 128 MiB of memory and 64 times its
size. Everything else is a finding; so is what ends the worker, whose addresses are bounded.
FOLDER/KIND/NUMBER is the first input of each. Add it, as small as it can be, to
testkit/fuzz/seeds/KIND/crashers: tests/fuzz/test_crashers.py reads those.

A call continues after the last input of this folder; calls for other kinds may run at the same
time. Inputs that do not pass the first check of their kind (valid JSON, a frame of the right
length) are read but not counted. By default a kind runs until 36,000 inputs, or 1,000 if one takes
over 10 ms of processor time. Lines are those that the seeds and the first 300 inputs reach. Writes
results/fuzz.json, of all kinds in the folder; exit status 1 with a finding, or without --inputs and
--kind if a target is missed: 1,000,000 inputs, and of each kind 10,000, or 1,000 if it is slow.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.fuzz.kind_run import run_kind
from benchmarks.fuzz.state import State
from testkit.fuzz.targets.lookup import KINDS
from testkit.record import RESULTS, ROOT, write_result

FIRST_INPUTS = 500
"""After these it is known how long an input of the kind takes."""
QUICK_SECONDS = 0.010
TARGET_INPUTS = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, help="inputs of each kind")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "fuzz")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60.0 * options.minutes
    for kind in options.kind:
        last = options.inputs
        if last is None:
            state = run_kind(folder, kind, options.seed, FIRST_INPUTS, deadline)
            last = wanted_inputs(state, default=36_000)
        state = run_kind(folder, kind, options.seed, last, deadline)
        print_state(state)
    states = [
        State.read(folder, kind, options.seed)
        for kind in KINDS
        if (folder / f"{kind}.json").exists()
    ]
    figures = report(states)
    path = write_result("fuzz", figures, options.out)
    print(f"{figures['counted']:,} inputs in all, {figures['findings']} findings: {path}")
    is_whole = options.inputs is None and len(options.kind) == len(KINDS)
    return int(bool(figures["findings"]) or (is_whole and bool(figures["missed"])))


def wanted_inputs(state: State, default: int) -> int:
    """Inputs of a kind; a second after its first ones it is known whether they are quick."""
    is_quick = state.seconds <= QUICK_SECONDS * max(state.next, 1)
    share = max(state.counted / max(state.next, 1), 0.1)
    return default if is_quick else int(1_000 / share) + 50


def report(states: list[State]) -> dict[str, Any]:
    counted = sum(state.counted for state in states)
    missed = [
        state.kind
        for state in states
        if state.counted < (10_000 if state.seconds <= QUICK_SECONDS * state.next else 1_000)
    ]
    missed += sorted(set(KINDS) - {state.kind for state in states})
    if counted < TARGET_INPUTS:
        missed.append(f"{TARGET_INPUTS:,} inputs")
    return {
        "counted": counted,
        "tried": sum(state.next for state in states),
        "findings": sum(len(state.findings) for state in states),
        "missed": missed,
        "kinds": {
            state.kind: {
                "tried": state.next,
                "counted": state.counted,
                "milliseconds": round(1e3 * state.seconds / max(state.next, 1), 3),
                "longest_seconds": round(state.longest_seconds, 3),
                "findings": state.findings,
                "lines": state.coverage,
            }
            for state in states
        },
    }


def print_state(state: State) -> None:
    milliseconds = 1e3 * state.seconds / max(state.next, 1)
    shares = list((state.coverage or {}).values())
    lines = f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %" if shares else "none"
    print(
        f"{state.kind}: {state.next:,} inputs, {state.counted:,} counted, {milliseconds:.2f} ms "
        f"each, lines reached {lines}, {len(state.findings)} findings",
        flush=True,
    )
    for finding in state.findings.values():
        print(f"    {finding['text']} ({finding['inputs']} inputs, first {finding['number']})")


if __name__ == "__main__":
    sys.exit(main())
