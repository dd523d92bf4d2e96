"""Small JSONL data sets for tests of prompts and verifiers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollcast.config.datasets import JsonlDataset
from rollcast.config.tasks import Evaluation, Tasks


def jsonl_tasks(path: Path, held_out: int = 1, **settings: Any) -> Tasks:
    return Tasks(
        dataset=JsonlDataset(name="rows", path=path, **settings),
        evaluation=Evaluation(num_prompts=held_out),
    )


def write_rows(path: Path, rows: list[object]) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path
