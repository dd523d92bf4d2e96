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
    if not isinstance(figures, dict):
        return Standing()
    if bool(figures.get("small")) != is_small:
        return Standing()
    state = _state(figures)
    if state == "failed" and again:
        return Standing()
    return Standing(state, float(figures.get("seconds", 0.0)))


def keep(name: str, folder: Path, figures: dict[str, Any]) -> None:
    """Write the part's file."""
    write_result(file_name(name), figures, folder)


def file_name(name: str) -> str:
    """Name of the part's file without its suffix."""
    return f"gpu-{name}"


def _state(figures: dict[str, Any]) -> State:
    if "failed" in figures:
        return "failed"
    return "cut" if "cut" in figures else "done"
