"""Reads the files of a run and its last metrics page, and lists what a run must never do.

Imports nothing of Rollcast: what the product's own readers pass over must not balance the books.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from testkit.system.audit import (
    SETTLED,
    never_settled,
    outcomes_of_tasks,
    read_lines,
    settled_twice,
    surviving_lines,
    tasks_of,
)

QUIET_SECONDS = 240.0
"""Longest time without a step after the end of a fault: a service starts and joins in it, with all
deadlines of the product, on a busy machine."""


@dataclass(slots=True)
class Violations:
    """Everything that is wrong in a run's files."""

    lost: list[int] = field(default_factory=list)
    """Tasks that were dispatched and have no outcome."""
    used_twice: list[int] = field(default_factory=list)
    """Tasks with two outcomes."""
    stale: list[dict[str, int]] = field(default_factory=list)
    """Steps that trained on tokens beyond the bound."""
    hangs: list[float] = field(default_factory=list)
    """Seconds without a step that no fault explains."""
    disagreements: list[str] = field(default_factory=list)
    """Differences between the metrics page and the files."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __bool__(self) -> bool:
        return any(self.as_dict().values())


@dataclass(frozen=True, slots=True)
class LastPage:
    """The trainer's last metrics page, and the size of tasks.jsonl at the same moment."""

    text: str
    tasks_bytes: int
    at: float
    """Unix seconds; no step may be overdue then."""


def check_run(
    folder: Path, page: LastPage, faults: Sequence[tuple[float, float]], *, lag: int
) -> Violations:
    """`faults`: begin and end of each, in Unix seconds."""
    tasks, steps = read_lines(folder / "tasks.jsonl"), read_lines(folder / "steps.jsonl")
    return Violations(
        lost=never_settled(tasks, lag),
        used_twice=settled_twice(tasks),
        stale=stale_steps(steps, lag),
        hangs=hangs([line["at"] for line in steps] + [page.at], faults),
        disagreements=[
            *compare_page(page.text, read_lines(folder / "tasks.jsonl", page.tasks_bytes), lag),
            *compare_steps(tasks, steps),
        ],
    )


def stale_steps(steps: list[dict[str, Any]], lag: int) -> list[dict[str, int]]:
    ages = ((line["step"], max(map(int, line["staleness_tokens"]), default=0)) for line in steps)
    return [{"step": step, "age": age} for step, age in ages if age > lag]


def hangs(times: Iterable[float], faults: Sequence[tuple[float, float]]) -> list[float]:
    """Gaps between these times that last longer than QUIET_SECONDS, the time of faults left out."""
    ordered = sorted(times)
    quiet = []
    for earlier, later in pairwise(ordered):
        # A fault that ends in the gap explains the time before its end
        ends = [end for begin, end in faults if begin < later and end > earlier]
        quiet.append(later - min(later, max([earlier, *ends])))
    return [round(seconds, 1) for seconds in quiet if seconds > QUIET_SECONDS]


def compare_page(page: str, tasks: list[dict[str, Any]], lag: int) -> list[str]:
    """The counters of the trainer's last process, and its lines in tasks.jsonl."""
    if not page:
        return ["the trainer had no metrics page"]
    samples = {
        (sample.name, sample.labels.get("outcome", sample.labels.get("le", ""))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    resumed = [number for number, line in enumerate(tasks) if line["what"] == "resumed"]
    last_lines = tasks[resumed[-1] if resumed else 0 :]
    counted = Counter({name: len(tasks_of(last_lines, name)) for name in ("used", "filtered")})
    wrong = [
        f"{name}: {counted[name]} in tasks.jsonl, {value:.0f} on the page"
        for name in counted
        if (value := samples.get(("rollcast_groups_total", name), 0.0)) != counted[name]
    ]
    step = max(
        (line["step"] for line in surviving_lines(tasks) if line["what"] == "step"), default=0
    )
    if samples.get(("rollcast_trainer_step", "")) != step:
        wrong.append(f"step {step} in tasks.jsonl, not the page's")
    ages = {bound: value for (name, bound), value in samples.items() if name == _STALENESS}
    if ages and ages.get(f"{float(lag)}") != ages["+Inf"]:
        wrong.append(f"the page counts tokens older than {lag} steps")
    return wrong


_STALENESS = "rollcast_staleness_steps_bucket"


def compare_steps(tasks: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[str]:
    """Every step of the surviving history is in both files.

    steps.jsonl has no marks of restarts: a step that was made again has several lines.
    """
    survived = {line["step"] for line in surviving_lines(tasks) if line["what"] == "step"}
    recorded = {line["step"] for line in steps}
    missing = sorted(survived - recorded)
    return [f"steps {missing} are in tasks.jsonl alone"] if missing else []


def given_up(lines: list[dict[str, Any]], held_at_faults: Sequence[int]) -> dict[str, int]:
    """Tasks that were given up: after losses by this program's faults, and others.

    `held_at_faults`: a task for each time that its generator was struck.
    """
    struck = Counter(held_at_faults)
    dead = set(tasks_of(surviving_lines(lines), "dead"))
    by_faults = sum(struck[task] > 0 for task in dead)
    return {"after faults": by_faults, "otherwise": len(dead) - by_faults}


def redone_after_outages(lines: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Counts of each restart of the trainer: tasks that were dispatched since the checkpoint, and
    those of them that had an outcome; tasks from before the checkpoint that were redone until the
    next checkpoint or restart.
    """
    outages = []
    for number, line in enumerate(lines):
        if line["what"] != "resumed":
            continue
        before = surviving_lines(lines[:number])
        kept = surviving_lines(lines[: number + 1])
        cut = before[len(kept) - 1 :]
        since = set(tasks_of(cut, "dispatched"))
        later = lines[number + 1 :]
        ends = [i for i, one in enumerate(later) if one["what"] in ("checkpoint", "resumed")]
        redone = set(tasks_of(later[: ends[0] if ends else len(later)], "redone"))
        outages.append(
            {
                "dispatched since the checkpoint": len(since),
                "made again": len(since & set(tasks_of(cut, *SETTLED))),
                "older tasks redone": len(redone & set(tasks_of(kept, "dispatched"))),
            }
        )
    return outages


def read_outcomes(folder: Path) -> dict[str, int]:
    return outcomes_of_tasks(read_lines(folder / "tasks.jsonl"))
