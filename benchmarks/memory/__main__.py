"""python -m benchmarks.memory [CASE ...] [--ranks 1 2 3 4]: what `rollcast plan memory` counts
against what ranks held.

The learner alone, on CPU over gloo, float32, random weights: each rank is a process, and its
largest memory, above that after the imports, is read from /proc while it reads the model, makes a
step, publishes and writes a checkpoint. One run of each: memory hardly varies. `ratio` is planned
over measured bytes; the target is within TARGET.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

from benchmarks.memory import rank
from benchmarks.memory.cases import CASES, run_config, write_model
from rollcast.local.ports import free_port
from rollcast.memory.trainer import RankMemory
from testkit.model_shapes import make_shape
from testkit.record import RESULTS, write_result

FORKSERVER = multiprocessing.get_context("forkserver")
TARGET = 0.1
PATIENCE_SECONDS = 900.0
OTHERS = ("publish", "checkpoint")
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16)}
"""glibc's allocator keeps freed memory up to 64 MiB a place otherwise: resident, but unused."""


def measure(case: str, model: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank held, in its order."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port("127.0.0.1")
        processes = [
            FORKSERVER.Process(target=rank.run, args=(case, model, folder, index, ranks, port))
            for index in range(ranks)
        ]
        for process in processes:
            process.start()
        try:
            for process in processes:
                process.join(PATIENCE_SECONDS)
        finally:
            for process in processes:
                process.kill()
        return [json.loads((folder / f"rank-{index}.json").read_text()) for index in range(ranks)]


def start_server() -> None:
    """Parent of the ranks, which are forks: it has imported everything."""
    os.environ.update({"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **GIVEN_BACK})
    FORKSERVER.set_forkserver_preload(["benchmarks.memory.rank"])
    ensure_running()


def planned(case: str, model: Path, index: int, ranks: int) -> dict[str, int]:
    shape = make_shape(json.loads((model / case / "config.json").read_text()))
    memory = RankMemory(shape, run_config(case, model, model), "cpu", index, ranks)
    totals = {moment.name: moment.total for moment in memory.moments()}
    others = {name: totals.pop(name) for name in OTHERS}
    return {"start": memory.start_on_host, "step": max(totals.values()), **others}


def compare(case: str, model: Path, ranks: int) -> list[dict[str, Any]]:
    rows = []
    for index, measured in enumerate(measure(case, model, ranks)):
        counted = planned(case, model, index, ranks)
        moments = {
            moment: {
                "planned": counted[moment],
                "measured": held,
                "ratio": round(counted[moment] / held, 3),
            }
            for moment, held in measured.items()
        }
        print(
            case,
            f"rank {index} of {ranks}",
            {moment: row["ratio"] for moment, row in moments.items()},
            flush=True,
        )
        rows.append({"case": case, "ranks": ranks, "rank": index, "moments": moments})
    return rows


def other_rows(cases: Sequence[str], ranks: Sequence[int]) -> list[dict[str, Any]]:
    """Earlier results that are not measured now."""
    path = RESULTS / "memory.json"
    rows = json.loads(path.read_text())["figures"]["rows"] if path.exists() else []
    return [row for row in rows if row["case"] not in cases or row["ranks"] not in ranks]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases",
        metavar="CASE",
        nargs="*",
        help=f"{', '.join(CASES)}; default all; the others' rows stay",
    )
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4])
    arguments = parser.parse_args()
    start_server()
    cases = arguments.cases or list(CASES)
    rows = other_rows(cases, arguments.ranks)
    targets: dict[str, bool] = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            write_model(case, Path(folder))
            for ranks in arguments.ranks:
                rows += compare(case, Path(folder), ranks)
                targets = record(rows)
    return 0 if all(targets.values()) else 1


def record(rows: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """After every case: each takes minutes."""
    errors = {
        moment: round(max(abs(row["moments"][moment]["ratio"] - 1) for row in rows), 3)
        for moment in ("start", "step", *OTHERS)
    }
    targets = {f"{moment} within {TARGET:.0%}": errors[moment] <= TARGET for moment in errors}
    write_result("memory", {"rows": list(rows), "largest_error": errors, "targets": targets})
    print(json.dumps({"largest_error": errors, "targets": targets}), flush=True)
    return targets


if __name__ == "__main__":
    sys.exit(main())
