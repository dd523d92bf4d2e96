"""The folder of a proof: one JSON file for each part that was tried, written when its process
ended.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testkit.gpu.proof.order import Standing, State
from testkit.record import write_result


def read_standing(name: str, folder: Path, *, is_small: bool, again: bool) -> Standing:
    """Return the part's state, read from its file. Tiny shapes and real ones do not count for each
    other.

    again: a part that failed counts as missing.
    """
    try:
        record: Any = json.loads((folder / f"{file_name(name)}.json").read_text())
    except (OSError, ValueError):
        return Standing()
    figures: Any = record.get("figures") if isinstance(record, dict) else None
    if not isinstance(figures, dict) or bool(figures.get("small")) != is_small:
        return Standing()
    if "failed" in figures and again:
        return Standing()
    state: State = "done"
    if "failed" in figures:
        state = "failed"
    elif "cut" in figures:
        state = "cut"
    return Standing(state, float(figures.get("seconds", 0.0)))


def keep(name: str, folder: Path, figures: dict[str, Any]) -> None:
    """Write the part's file."""
    write_result(file_name(name), figures, folder)


def file_name(name: str) -> str:
    """Name of the part's file without its suffix."""
    return f"gpu-{name}"
