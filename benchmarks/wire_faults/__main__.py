"""Generators are killed and frozen while a trainer publishes: do the survivors keep threads or
memory of them?

    python -m benchmarks.wire_faults [--lanes 1 4 16] [--kills 30] [--freezes 30]
                                     [--settle-seconds 120]
    python -m benchmarks.wire_faults --device cuda --lanes 4 --kills 3 --freezes 3  # NCCL, one card

Real processes, killed with SIGKILL and frozen with SIGSTOP, in the middle of a broadcast and
between Join and Joined (`testkit.weights.faults`). Each number of lanes runs in a process of its
own. On one card every process is a host of its own for NCCL (NCCL_HOSTID), and they meet on
loopback. Writes results/wire_faults.json, on a GPU results/wire_faults_cuda.json, with the rows of
other numbers of lanes; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from testkit.record import RESULTS, write_result
from testkit.weights.faults import Faults, send_figures

START_SECONDS = 300.0
"""Longest time for start, warm-up and end, on a busy machine."""
EVENT_SECONDS = 120.0
"""Longest time of one event: the patience of `testkit.weights.faults`."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--freezes", type=int, default=30)
    parser.add_argument(
        "--settle-seconds", type=float, default=120.0, help="from the last event to the last count"
    )
    parser.add_argument("--megabytes", type=int, default=32, help="size of a version")
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        help="numbers of lanes tried side by side; most of it is waiting",
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="cpu: gloo; cuda: NCCL on one card"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    faults = Faults(
        kills=arguments.kills,
        freezes=arguments.freezes,
        settle_seconds=arguments.settle_seconds,
        megabytes=arguments.megabytes,
        device="cpu" if arguments.device == "cpu" else "cuda:0",
    )
    name = "wire_faults" if arguments.device == "cpu" else f"wire_faults_{arguments.device}"
    rows = rows_of_others(arguments.out / f"{name}.json", arguments.lanes)
    tried = []
    with ThreadPoolExecutor(arguments.at_once) as threads:
        for row in threads.map(
            in_its_own_process, [replace(faults, lanes=lanes) for lanes in arguments.lanes]
        ):
            rows = sorted([*rows, row], key=lambda row: row["lanes"])
            tried.append(row)
            print(json.dumps(row, indent=1), flush=True)
            # After each number of lanes, so that a run that is cut off leaves its results.
            write_result(name, {"rows": rows}, arguments.out)
    return 0 if all(all(row["targets"].values()) for row in tried) else 1


def rows_of_others(path: Path, lanes: list[int]) -> list[dict[str, Any]]:
    """Earlier rows of other numbers of lanes, which stay."""
    rows = json.loads(path.read_text())["figures"]["rows"] if path.exists() else []
    return [row for row in rows if row["lanes"] not in lanes]


def in_its_own_process(faults: Faults) -> dict[str, Any]:
    """The figures; a trainer that ended instead is a target missed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    started = time.monotonic()
    process = context.Process(target=send_figures, args=(theirs, faults))
    process.start()
    theirs.close()
    limit = START_SECONDS + faults.settle_seconds + EVENT_SECONDS * (faults.kills + faults.freezes)
    figures: dict[str, Any] = {
        "lanes": faults.lanes,
        "targets": {"every survivor serves or is served": False},
    }
    with suppress(EOFError):
        if ours.poll(limit):
            figures = ours.recv()
        else:
            end_with_children(process)
    process.join(START_SECONDS)
    return {
        **figures,
        "exit_code": process.exitcode,
        "seconds": round(time.monotonic() - started, 1),
    }


def end_with_children(process: BaseProcess) -> None:
    """Its generators would try to reach it for good."""
    assert process.pid is not None
    found = psutil.Process(process.pid)
    for one in (*found.children(recursive=True), found):
        with suppress(psutil.NoSuchProcess):
            one.kill()


if __name__ == "__main__":
    sys.exit(main())
