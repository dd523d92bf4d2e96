"""HumanEval and MBPP+ as problems with their own solutions, from the folder that
ROLLCAST_SHARED_DATA names.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.tasks import code_tests


@dataclass(frozen=True, slots=True)
class Problem:
    name: str
    solution: str
    """The data set's own."""
    preamble: str
    tests: str
    reference: str
    """JSON text for the verifier."""


def read_problems(folder: Path) -> dict[str, list[Problem]]:
    """By data set; those whose files are absent are left out."""
    tasks = folder / "tasks"
    found = {
        "humaneval": [_humaneval(row) for row in _rows(tasks / "humaneval" / "HumanEval.jsonl.gz")],
        "mbpp-plus": [
            _mbpp(row) for row in _rows(tasks / "mbppplus" / "MbppPlus-OriginFmt.jsonl.gz")
        ],
    }
    return {name: problems for name, problems in found.items() if problems}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def _humaneval(row: dict[str, Any]) -> Problem:
    reference = code_tests.humaneval(row)
    solution = row["prompt"] + row["canonical_solution"]
    return Problem(
        row["task_id"], solution, row["prompt"], reference["tests"], json.dumps(reference)
    )


def _mbpp(row: dict[str, Any]) -> Problem:
    reference = code_tests.mbpp_plus(row)
    return Problem(
        f"Mbpp/{row['task_id']}", row["code"], "", reference["tests"], json.dumps(reference)
    )
