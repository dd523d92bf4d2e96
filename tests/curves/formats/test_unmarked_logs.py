"""Logs without marks of a format: tables pasted from a notebook, lines of words and numbers, cells
such as `13/64`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.formats.history import read_history

STEPS = range(1, 13)
RIGHT = [round(0.2 + 0.03 * step, 4) for step in STEPS]
HEADING = ["Step", "Training Loss", "reward", "reward_std", "kl"]
CELLS = [
    [str(s), f"{0.001 * s:.6f}", str(r), "0.3", "0.01"] for s, r in zip(STEPS, RIGHT, strict=True)
]
EVALUATED = ["Step", "Training Loss", "Validation Loss", "Accuracy"]
EVALUATED_CELLS = [
    [str(s), "No log" if s < 3 else "0.1", "0.2", str(r)] for s, r in zip(STEPS, RIGHT, strict=True)
]
PROGRESS = "Unsloth: patched 28 layers.\n [250/250 35:12, Epoch 1/1]\n"


def table(heading: list[str], rows: list[list[str]], between: str, row_end: str = "\n") -> str:
    return row_end.join(between.join(row) for row in [heading, *rows]) + "\n"


def lines(form: str, steps: range = STEPS) -> str:
    return "".join(
        form.format(s=s, r=r, p=round(100 * r), n=3 + s) + "\n"
        for s, r in zip(steps, RIGHT, strict=True)
    )


READ = {
    "pasted: tabs below a bar": ("a.log", PROGRESS + table(HEADING, CELLS, "\t")),
    "pasted: several blanks": ("a.txt", table(HEADING, CELLS, "   ")),
    "pasted: one blank": ("a.log", PROGRESS + table(HEADING, CELLS, " ") + "Done in 35 minutes\n"),
    "pasted: a cell a line": ("a.log", PROGRESS + table(HEADING, CELLS, "\n")),
    "pasted: a cell a line, empty lines between": (
        "a.log",
        table(EVALUATED, EVALUATED_CELLS, "\n\n", "\n\n"),
    ),
    "pasted: no log": ("a.log", "Start\n" + table(EVALUATED, EVALUATED_CELLS, " ")),
    "words: two values": ("a.log", lines("iteration {s} reward {r} loss 1.2")),
    "words: a time and a level": (
        "a.log",
        "loading\n" + lines("2026-03-02 10:00 INFO step {s} mean reward {r} lr 1e-06"),
    ),
    "words: per cent": ("a.log", lines("epoch {s} train loss 0.5 val accuracy {p}%")),
    "words: a unit before": ("a.log", lines("[trainer] step {s} took 3.2s success rate {r}")),
    "words: among other lines": (
        "a.log",
        lines("step {s} loss 0.2 and pass rate {r}\nThe answer is 12 apples."),
    ),
    "cells: a rate": ("a.csv", "step,eval_accuracy,loss\n" + lines("{s},{n}/64,0.3")),
    "cells: a count": ("a.csv", "step,passed\n" + lines("{s},{n}/64")),
    "cells: blanks": ("a.csv", "step;pass_rate\n" + lines("{s};{n} / 64")),
    "cells: of": ("a.tsv", "iteration\tsuccess_rate\n" + lines("{s}\t{n} of 64")),
    "cells: other totals": (
        "a.csv",
        "step,accuracy\n" + lines("{s},{n}/64").replace(",4/64", ",8/128"),
    ),
}
OTHER = {
    "pasted: four rows": ("a.log", PROGRESS + table(HEADING, CELLS[:4], "\t")),
    "pasted: steps that fall": ("a.log", PROGRESS + table(HEADING, CELLS[::-1], "\t")),
    "pasted: no measure": (
        "a.log",
        PROGRESS + table(["Step", "Training Loss", "kl"], [r[:3] for r in CELLS], "\t"),
    ),
    "pasted: more names than cells": (
        "a.log",
        PROGRESS + table(["Step", "mean", "reward", "loss"], [r[:3] for r in CELLS], " "),
    ),
    "pasted: more names than cells at the start": (
        "a.txt",
        table(["step", "mean", "reward", "loss"], [r[:3] for r in CELLS], " "),
    ),
    "pasted: prose below": ("a.log", "Step\nreward\n" + "1\nthen 0.2\n2\nthen 0.3\n" * 6),
    "words: four lines": (
        "a.log",
        "".join(lines("iteration {s} reward {r} loss 1.2").splitlines(True)[:4]),
    ),
    "words: other words in each": (
        "a.log",
        "".join(
            f"step {s} {'x' * s} reward {r} loss 1\n" for s, r in zip(STEPS, RIGHT, strict=True)
        ),
    ),
    "words: answers that count to three": (
        "a.log",
        "Step 1 reward 3 cost 5\nStep 2 reward 4 cost 5\nStep 3 reward 5 cost 5\n" * 5,
    ),
    "words: no measure": ("a.log", lines("Step {s} takes 4 eggs and 7 apples")),
    "words: no step": ("a.log", lines("He had reward {r} and 7 apples")),
    "cells: dates": ("a.csv", "step,date\n" + lines("{s},{s}/12")),
    "cells: more than all": ("a.csv", "step,accuracy\n" + lines("{s},{n}/9")),
    "cells: of nothing": ("a.csv", "step,accuracy\n" + lines("{s},0/0")),
    "cells: three numbers": ("a.csv", "step,accuracy\n" + lines("{s},{n}/64/2")),
    "cells: some numbers only": ("a.csv", "step,accuracy\n" + lines("{s},{n}/64") + "13,0.5\n"),
}


@pytest.mark.parametrize("kind", READ)
def test_it_is_read(kind: str, tmp_path: Path) -> None:
    name, text = READ[kind]
    (tmp_path / name).write_text(text)
    history = read_history(str(tmp_path / name), Columns(), None)
    rates = [point.pass_rate for point in history.evaluations]
    right = RIGHT
    if kind.startswith("cells"):
        right = [(3 + step) / 64 for step in STEPS]
    assert rates == [
        pytest.approx(rate, abs=0.0051 if "per cent" in kind else 1e-9) for rate in right
    ]
    assert [int(point.compute) for point in history.evaluations] == list(STEPS)


@pytest.mark.parametrize("kind", OTHER)
def test_it_is_not_read(kind: str, tmp_path: Path) -> None:
    name, text = OTHER[kind]
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError):
        read_history(str(tmp_path / name), Columns(), None)
