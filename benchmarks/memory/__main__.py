"""python -m benchmarks.memory [CASE ...] [--ranks 1 2 3 4]: what `rollcast plan memory` counts against what ranks held.

The learner alone, on CPU over gloo, float32, random weights: each rank is a process, and what it held most, above what
it held after the imports, is read from /proc while it reads the model, makes a step, publishes and writes a checkpoint.
One run of each: memory hardly varies. `ratio` is planned over measured bytes; the target is within TARGET.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory.cases import CASES, run_config, write_model
from rollcast.local.ports import free_port
from rollcast.memory.architecture import model_shape
from rollcast.memory.trainer import RankMemory
from testkit.record import RESULTS, write_result

TARGET = 0.1
PATIENCE_SECONDS = 900.0
OTHERS = ("publish", "checkpoint")
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16)}
"""glibc's allocator keeps freed memory up to 64 MiB a place otherwise: resident, and nobody's."""


def measure(case: str, model: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank held, in its order."""
    with tempfile.TemporaryDirectory() as folder:
        shared = os.environ | {
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port("127.0.0.1")),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            **GIVEN_BACK,
        }
        command = [sys.executable, "-m", "benchmarks.memory.rank", case, str(model), folder]
        processes = [
            subprocess.Popen(
                command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, text=True
            )
            for rank in range(ranks)
        ]
        try:
            said = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    return [json.loads(lines.splitlines()[-1]) for lines in said]


def planned(case: str, model: Path, rank: int, ranks: int) -> dict[str, int]:
    shape = model_shape(json.loads((model / case / "config.json").read_text()))
    memory = RankMemory(shape, run_config(case, model, model), "cpu", rank, ranks)
    totals = {moment.name: moment.total for moment in memory.moments()}
    others = {name: totals.pop(name) for name in OTHERS}
    return {"start": memory.start_on_host, "step": max(totals.values()), **others}


def compare(case: str, model: Path, ranks: int) -> list[dict[str, Any]]:
    rows = []
    for rank, measured in enumerate(measure(case, model, ranks)):
        counted = planned(case, model, rank, ranks)
        moments = {
            moment: {"planned": counted[moment], "measured": held, "ratio": round(counted[moment] / held, 3)}
            for moment, held in measured["most"].items()
        }
        print(case, f"rank {rank} of {ranks}", {moment: row["ratio"] for moment, row in moments.items()}, flush=True)
        rows.append({"case": case, "ranks": ranks, "rank": rank, "moments": moments})
    return rows


def other_rows(cases: Sequence[str], ranks: Sequence[int]) -> list[dict[str, Any]]:
    """What was measured before and is not now."""
    path = RESULTS / "memory.json"
    rows = json.loads(path.read_text())["figures"]["rows"] if path.exists() else []
    return [row for row in rows if row["case"] not in cases or row["ranks"] not in ranks]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", metavar="CASE", nargs="*", help=f"{', '.join(CASES)}; default all; the others' rows stay"
    )
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4])
    arguments = parser.parse_args()
    cases = arguments.cases or list(CASES)
    rows = other_rows(cases, arguments.ranks)
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            write_model(case, Path(folder))
            for ranks in arguments.ranks:
                rows += compare(case, Path(folder), ranks)
    errors = {
        moment: round(max(abs(row["moments"][moment]["ratio"] - 1) for row in rows), 3)
        for moment in ("start", "step", *OTHERS)
    }
    targets = {f"{moment} within {TARGET:.0%}": error <= TARGET for moment, error in errors.items()}
    print(write_result("memory", {"rows": rows, "largest_error": errors, "targets": targets}))
    print(json.dumps({"largest_error": errors, "targets": targets}))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
