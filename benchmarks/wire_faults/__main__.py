"""Generators are killed and frozen while a trainer publishes: do the survivors keep threads or memory of them?

    python -m benchmarks.wire_faults [--lanes 1 4 16] [--kills 30] [--freezes 30] [--settle-seconds 120]
    python -m benchmarks.wire_faults --device cuda --lanes 4 --kills 3 --freezes 3    # NCCL, one card

Real processes, killed with SIGKILL and frozen with SIGSTOP, in the middle of a broadcast and between Join and Joined
(`testkit.weights.faults`). Each number of lanes runs in a process of its own. On one card every process is a host of
its own for NCCL (NCCL_HOSTID), and they meet on loopback. Writes results/wire_faults.json, on a GPU
results/wire_faults_cuda.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from testkit.record import RESULTS, write_result
from testkit.weights.faults import Faults, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--freezes", type=int, default=30)
    parser.add_argument("--settle-seconds", type=float, default=120.0, help="from the last event to the last count")
    parser.add_argument("--megabytes", type=int, default=32, help="size of a version")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu: gloo; cuda: NCCL on one card")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    faults = Faults(
        kills=arguments.kills,
        freezes=arguments.freezes,
        settle_seconds=arguments.settle_seconds,
        megabytes=arguments.megabytes,
        device=arguments.device,
    )
    name = "wire_faults" if arguments.device == "cpu" else f"wire_faults_{arguments.device}"
    rows: list[dict[str, Any]] = []
    for lanes in arguments.lanes:
        rows.append(in_its_own_process(replace(faults, lanes=lanes)))
        print(json.dumps(rows[-1], indent=1), flush=True)
        # After each number of lanes, so that a run that is cut off leaves what it has found.
        write_result(name, {"settle_seconds": faults.settle_seconds, "rows": rows}, arguments.out)
    return 0 if all(all(row["targets"].values()) for row in rows) else 1


def in_its_own_process(faults: Faults) -> dict[str, Any]:
    """The figures; a trainer that ended instead is a target missed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    started = time.monotonic()
    process = context.Process(target=send_figures, args=(theirs, faults))
    process.start()
    theirs.close()
    try:
        figures: dict[str, Any] = ours.recv()
    except EOFError:
        figures = {"lanes": faults.lanes, "targets": {"every survivor serves or is served": False}}
    process.join()
    return {**figures, "exit_code": process.exitcode, "seconds": round(time.monotonic() - started, 1)}


def send_figures(pipe: Any, faults: Faults) -> None:
    pipe.send(measure(faults))
    pipe.close()


if __name__ == "__main__":
    sys.exit(main())
