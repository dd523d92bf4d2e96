"""Reads tasks.jsonl as an accountant: what became of every task in the surviving history."""

from __future__ import annotations

from collections import Counter
from typing import Any


def surviving_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cut back to the checkpoint that each restart resumed."""
    kept: list[dict[str, Any]] = []
    for line in lines:
        if line["what"] == "resumed" and line["version"] is None:
            kept = []  # died before its first checkpoint: from scratch
        elif line["what"] == "resumed":
            marks = [
                i for i, old in enumerate(kept) if old["what"] == "checkpoint" and old["version"] == line["version"]
            ]
            assert marks, f"resumed {line['version']}, which is no checkpoint"
            kept = kept[: marks[-1] + 1]
        kept.append(line)
    return kept


def check_every_task_once(lines: list[dict[str, Any]]) -> dict[str, int]:
    """Every dispatched task is settled at most once; returns the number of tasks by outcome, `open` for the rest."""
    settled: Counter[int] = Counter()
    dispatched: set[int] = set()
    outcomes: Counter[str] = Counter()
    for line in surviving_lines(lines):
        if line["what"] == "dispatched":
            assert not dispatched & set(line["tasks"]), "a sequence was given out twice"
            dispatched |= set(line["tasks"])
        elif line["what"] in ("used", "filtered", "dead", "stale"):
            settled.update(line["tasks"])
            outcomes[line["what"]] += len(line["tasks"])
    assert set(settled) <= dispatched, "a task was settled that was never dispatched"
    twice = [task for task, count in settled.items() if count > 1]
    assert not twice, f"settled more than once: {twice}"
    outcomes["open"] = len(dispatched) - len(settled)
    return dict(outcomes)
