"""Reads tasks.jsonl as an accountant: what became of every task in the surviving history.

It parses the lines itself, by bare names and without `runfolder`: what the product's own reader
passed over or read wrongly must not balance the books.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

SETTLED = ("used", "filtered", "dead", "stale")
EPISODE_ENDS = {"answered", "done", "tokens", "turns", "seconds", "failed"}


def read_lines(path: Path, num_bytes: int = -1) -> list[dict[str, Any]]:
    """Every whole line that has ended; those that a kill or a full disk tore are left out, counted
    and reported. `num_bytes`: of the file's beginning alone; -1 = all.
    """
    lines, torn = [], 0
    text = (
        path.read_bytes()[: None if num_bytes < 0 else num_bytes].decode() if path.exists() else ""
    )
    for line in text.split("\n")[:-1]:
        try:
            lines.append(json.loads(line))
        except ValueError:
            torn += 1
    if torn:
        print(f"{path}: {torn} torn lines left out")
    return lines


def surviving_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cut back to the checkpoint that each restart resumed."""
    kept_lines: list[dict[str, Any]] = []
    for line in lines:
        if line["what"] == "resumed" and line.get("version") is None:
            kept_lines = []  # died before its first checkpoint: from scratch
        elif line["what"] == "resumed":
            marks = [
                i
                for i, old in enumerate(kept_lines)
                if old["what"] == "checkpoint" and old["version"] == line["version"]
            ]
            assert marks, f"resumed {line['version']}, which is no checkpoint"
            kept_lines = kept_lines[: marks[-1] + 1]
        kept_lines.append(line)
    return kept_lines


def tasks_of(lines: list[dict[str, Any]], *events: str) -> list[int]:
    """The tasks of the lines of these events."""
    return [task for line in lines if line["what"] in events for task in line["tasks"]]


def never_settled(lines: list[dict[str, Any]], lag: int) -> list[int]:
    """Tasks without an outcome that were dispatched before the last k steps (and two for the way to
    a generator), however long they were.

    Batches without an update make no step, so steps are what counts.
    """
    kept_lines = surviving_lines(lines)
    steps = {line["step"]: i for i, line in enumerate(kept_lines) if line["what"] == "step"}
    cut = steps[max(steps) - lag - 2]
    dispatched = set(tasks_of(kept_lines[:cut], "dispatched"))
    assert len(dispatched) > 0
    return sorted(dispatched - set(tasks_of(kept_lines, *SETTLED)))


def check_nothing_was_left_behind(lines: list[dict[str, Any]], lag: int) -> None:
    """See `never_settled`."""
    lost = never_settled(lines, lag)
    assert not lost, f"never settled: {lost}"


def settled_twice(lines: list[dict[str, Any]]) -> list[int]:
    settled = Counter(tasks_of(surviving_lines(lines), *SETTLED))
    return sorted(task for task, count in settled.items() if count > 1)


def check_every_task_once(lines: list[dict[str, Any]]) -> dict[str, int]:
    """Every dispatched task is settled at most once; returns the number of tasks by outcome, `open`
    for the rest.
    """
    twice = settled_twice(lines)
    assert not twice, f"settled more than once: {twice}"
    return outcomes_of_tasks(lines)


def outcomes_of_tasks(lines: list[dict[str, Any]]) -> dict[str, int]:
    """The number of tasks by outcome in the surviving history, `open` for the rest."""
    kept_lines = surviving_lines(lines)
    dispatched = Counter(tasks_of(kept_lines, "dispatched"))
    settled = set(tasks_of(kept_lines, *SETTLED))
    assert dispatched.total() == len(dispatched), "a sequence was given out twice"
    assert settled <= dispatched.keys(), "a task was settled that was never dispatched"
    outcomes = {event: len(tasks_of(kept_lines, event)) for event in SETTLED}
    outcomes["open"] = len(dispatched) - len(settled)
    return {event: count for event, count in outcomes.items() if count or event == "open"}


def check_every_episode_ended(lines: list[dict[str, Any]], rollouts: int) -> dict[str, int]:
    """Every group that was used or filtered came back with all of its episodes, each ended for one
    known reason.

    Those that failed say why. Returns how many ended for which reason in the surviving history.
    `rollouts`: asked for each prompt.
    """
    ends: Counter[str] = Counter()
    for line in settled_groups(lines):
        episodes = line.get("episodes", {})
        failures = line.get("failures", {})
        report = f"task {line['tasks']}: {episodes}, asked were {rollouts}; {failures}"
        assert sum(episodes.values()) == rollouts, report
        assert set(episodes) <= EPISODE_ENDS, report
        assert sum(failures.values()) == episodes.get("failed", 0), report
        assert all(sentence.startswith("environment ") for sentence in failures), report
        ends.update(episodes)
    return dict(ends)


def failures_of_dead(lines: list[dict[str, Any]]) -> list[int]:
    """How often each task that was given up had lost its generator or had an answer that could not
    be used.
    """
    dead = set(tasks_of(surviving_lines(lines), "dead"))
    redone = Counter(tasks_of(lines, "redone"))
    return [redone[task] + 1 for task in sorted(dead)]


def failures(lines: list[dict[str, Any]]) -> Counter[str]:
    """Episodes that were given up, by the sentence that says why."""
    failure_counts: Counter[str] = Counter()
    for line in settled_groups(lines):
        failure_counts.update(line.get("failures", {}))
    return failure_counts


def settled_groups(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of groups that came back, in the surviving history."""
    return [line for line in surviving_lines(lines) if line["what"] in ("used", "filtered")]
