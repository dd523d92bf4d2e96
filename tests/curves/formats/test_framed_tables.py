"""Tables that a console draws, lines whose value is behind their step, and lines below a heading
with their step.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

from rollcast.curves.columns.choices import Columns
from testkit.formats.history import read_history

STEPS = range(10, 130, 10)
SAMPLE = "Question: How many?\nStep 1: 6 beds * 10 rows = 60\n(3/8) * 320 loaves = 120 loaves\n"


def rate(step: int) -> float:
    return round(0.2 + 0.5 * step / (step + 60), 4)


def drawn(table: Table) -> str:
    out = StringIO()
    Console(file=out, width=100).print(table)
    return out.getvalue()


def growing(style: box.Box) -> str:
    table = Table("step", "loss", "reward", box=style)
    for step in STEPS:
        table.add_row(str(step), "0.1", str(rate(step)))
    return SAMPLE + drawn(table)


def by_step(style: box.Box) -> str:
    shown = []
    for step in STEPS:
        table = Table("step", "loss", "reward", box=style)
        table.add_row(str(step), "0.1", str(rate(step)))
        shown.append(drawn(table))
    return SAMPLE.join(shown)


def pairs(style: box.Box, title: str = "") -> str:
    shown = []
    for step in STEPS:
        table = Table("Metric", "Value", box=style, title=title.format(step))
        rows = {"loss": 0.1, "reward": rate(step), "tokens": "1,234"} | (
            {} if title else {"step": step}
        )
        for name, value in rows.items():
            table.add_row(name, str(value))
        shown.append(drawn(table))
    return SAMPLE.join(shown)


def stable_baselines() -> str:
    frame = "-" * 37 + "\n"
    shown = []
    for step in STEPS:
        rows = [("rollout/", ""), ("   ep_len_mean", 20), ("   success_rate", rate(step)), ("time/",
            ""),
                ("   fps", 300), ("   total_timesteps", step)]  # fmt: skip
        shown.append(
            frame + "".join(f"| {name:20} | {value:<10} |\n" for name, value in rows) + frame
        )
    return "Using cpu device\n" + "".join(shown)


TABLES = {
    "rich, growing": (growing(box.HEAVY_HEAD), "reward"),
    "rich, rounded": (growing(box.ROUNDED), "reward"),
    "rich, one for each step": (by_step(box.HEAVY_HEAD), "reward"),
    "rich, in ASCII": (by_step(box.ASCII), "reward"),
    "rich, names and values": (pairs(box.ROUNDED), "reward"),
    "rich, below the step": (pairs(box.HEAVY_HEAD, "Step {}/500"), "reward"),
    "rich, square": (pairs(box.SQUARE, "Iteration {}"), "reward"),
    "double lines": (pairs(box.DOUBLE), "reward"),
    "Markdown": (by_step(box.MARKDOWN), "reward"),
    "stable-baselines3": (stable_baselines(), "rollout/success_rate"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_a_console_are_read(kind: str, tmp_path: Path) -> None:
    text, pass_rate = TABLES[kind]
    path = tmp_path / "train.log"
    path.write_text(text)
    history = read_history(str(path), Columns(), None)
    assert (history.origin.format, history.origin.pass_rate) == ("tables of a console", pass_rate)
    assert {item.compute: item.pass_rate for item in history.evaluations} == {
        float(s): rate(s) for s in STEPS
    }


@pytest.mark.parametrize(
    "line",
    [
        "Eval accuracy at step {s}: {r}",
        "INFO 10:00 | mean reward after iteration {s} = {r}",
        "Accuracy for epoch {s}/200: {r} (took 3s)",
        "[eval] pass rate @ step {s}: {p}%",
        "test acc at step {s}: {n}/10000",
        "Evaluation at step {s}: {n}/10000 correct ({p}%)",
        "Iteration {s}: won {n} of 10000 games",
        "Iteration {s}: {n} of 10000 games won",
        "Step {s}/200, Loss: 0.1, Success rate: {r}",
    ],
)
def test_a_value_behind_its_step_is_read(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    shown = [
        line.format(s=s, r=rate(s), p=round(100 * rate(s), 2), n=round(10_000 * rate(s)))
        for s in STEPS
    ]
    path.write_text(SAMPLE + f"\n{SAMPLE}".join(shown) + "\n")
    history = read_history(str(path), Columns(), None)
    assert [item.pass_rate for item in history.evaluations] == pytest.approx(
        [rate(s) for s in STEPS]
    )


@pytest.mark.parametrize(
    ("heading", "lines", "pass_rate"),
    [
        (
            "===== Iteration {s}/200 =====",
            "avg reward: 0.9\nsuccess rate: {r}\nloss: 0.1",
            "success_rate",
        ),
        (
            "--- Epoch {s} ---",
            "Training ..\n  train reward: 0.9, kl: 0.1\n  eval accuracy: {r}",
            "eval_accuracy",
        ),
        ("Step {s}", "  reward={r}", "reward"),
        ("[10:00:01] Step {s} of 200", "mean reward = {r}\nlength = 200", "reward"),
        ("#### step {s} (lr 1e-6)", "loss: 0.1 | acc: {r}", "acc"),
    ],
)
def test_lines_below_a_heading_are_of_its_step(
    heading: str, lines: str, pass_rate: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    answer = "**Step 1:** 6 * 10 = 60\n**Step 2:** multiply\nanswer: 25\n"
    path.write_text("".join(f"{heading}\n{answer}{lines}\n".format(s=s, r=rate(s)) for s in STEPS))
    history = read_history(str(path), Columns(), None)
    assert history.origin.pass_rate == pass_rate
    assert {item.compute: item.pass_rate for item in history.evaluations} == {
        float(s): rate(s) for s in STEPS
    }
