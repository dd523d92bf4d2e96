"""Folders of runs as their services leave them, a sigmoid as their curve."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, parse_run_config


def settings(tmp_path: Path) -> RunConfig:
    data = {
        "run": "mine",
        "folder": str(tmp_path),
        "model": {"path": "m"},
        "budget": {"steps": 200},
    }
    config = parse_run_config(data, source="test")
    config.run_folder.mkdir()
    write_resolved(config, config.run_folder / "run.json")
    return config


def write(folder: Path, name: str, lines: list[dict[str, Any]]) -> None:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def trained(config: RunConfig, steps: int = 100) -> None:
    folder, now = config.run_folder, time.time()
    (folder / "format.json").write_text('{"format": 1}')
    write(folder, "steps.jsonl", [{"step": step, "at": now + step} for step in range(1, steps + 1)])
    points = [
        {
            "incarnation": 1,
            "step": step,
            "pass_rate": 0.1 + 0.6 / (1 + math.exp((40 - step) / 10)),
            "compute_device_hours": step / 100,
            "standard_error": 0.01,
            "run": "mine",
        }
        for step in range(0, steps + 1, 5)
    ]
    write(folder, "evaluations.jsonl", points)


def ended_early(config: RunConfig) -> None:
    mark = {
        "what": "stopped_early",
        "step": 150,
        "reason": "saturated on 3 refits in a row",
        "at": 0.0,
    }
    write(config.run_folder, "tasks.jsonl", [mark])
    result = {
        "initial": 0.1,
        "measured": 0.7,
        "frozen": None,
        "error": None,
        "last_value_error": None,
        "inside": None,
    }
    result |= {"gain_share_at_freeze": None, "num_evaluations": 31}
    (config.run_folder / "result.json").write_text(json.dumps(result))
