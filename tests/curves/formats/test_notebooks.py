"""Notebooks and pages: the table of a trainer's progress, or what a cell printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.formats.history import read_history

STEPS = range(10, 130, 10)


def rate(step: int, gain: float = 0.5) -> float:
    return round(0.2 + gain * step / (step + 60), 6)


def table(header: list[str], rows: list[list[object]]) -> str:
    """As transformers' progress bar draws it in a notebook."""
    heads = "".join(f"      <th>{name}</th>\n" for name in header)
    cells = "".join(
        "    <tr>\n" + "".join(f"      <td>{cell}</td>\n" for cell in row) + "    </tr>\n"
        for row in rows
    )
    return (
        "\n    <div>\n      \n      <progress value='250' max='250' style='width:300px; "
        "height:20px;'></progress>\n"
        '      [250/250 35:12, Epoch 1/1]\n    </div>\n    <table border="1" class="dataframe">\n '
        " <thead>\n"
        f' <tr style="text-align: left;">\n{heads}    </tr>\n  </thead>\n  <tbody>\n{cells}  '
        "</tbody>\n</table><p>"
    )


def progress(gain: float = 0.5, steps: range = STEPS) -> str:
    header = [
        "Step",
        "Training Loss",
        "reward",
        "reward_std",
        "rewards / correctness_reward_func / mean",
    ]
    return table(header, [[s, "0.000100", 1.5, 0.3, f"{rate(s, gain):.6f}"] for s in steps])


def evaluated() -> str:
    header = ["Step", "Training Loss", "Validation Loss", "Accuracy"]
    return table(
        header, [[s, "No log" if s < 20 else "0.1", "0.2", f"{rate(s):.6f}"] for s in STEPS]
    )


def frame() -> str:
    """As pandas shows a frame, with headings at the left of its rows."""
    rows = "".join(
        f"<tr><th>{n}</th><td>{s}</td><td>{rate(s)}</td></tr>\n" for n, s in enumerate(STEPS)
    )
    head = "<thead><tr><th></th><th>step</th><th>eval_acc</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def html_output(text: str) -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "data": {"text/html": text.splitlines(keepends=True), "text/plain": ["<x>"]},
    }


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def notebook(*outputs: list[dict[str, Any]]) -> str:
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "source": ["# Step 1: acc = 0.5"]}]
    cells += [{"cell_type": "code", "source": ["train()"], "outputs": found} for found in outputs]
    return json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )


SAMPLES = (
    "-------------------- Question:\nHow many?\nAnswer:\n25\nResponse:\nStep 1: 6 * 10 = "
    "60\nExtracted:\n25\n"
)
KEYS = "".join(f"step {s}: loss=0.1 acc={rate(s)}\n{SAMPLES}" for s in STEPS)
DICTS = "".join(f"{{'loss': 0.1, 'reward': {rate(s)}, 'epoch': {s / 100:.2f}}}\n" for s in STEPS)
VERL = "".join(f"step:{s} - critic/score/mean:{rate(s)} - actor/entropy:0.4\n" for s in STEPS)
BARS = "".join(f"\r 10%|█▏  | {s}/120 [00:01<00:09, 1.0it/s, acc={rate(s)}]" for s in STEPS)

READ = {
    "a progress table": (notebook([html_output(progress())]), "notebook",
        "rewards / correctness_reward_func / mean"),
    "with printed samples": (
        notebook(
            [stream(SAMPLES * 40), html_output(progress()),
                stream("Step 1: acc = 0.9, x = 2\n" * 9)]),
        "notebook", "rewards / correctness_reward_func / mean"),
    "with evaluations": (notebook([html_output(evaluated())]), "notebook", "Accuracy"),
    "a frame": (notebook([html_output(frame())]), "notebook", "eval_acc"),
    "with a table of results": (
        notebook([html_output(evaluated())],
            [html_output(table(["model", "accuracy"], [[name, 0.5] for name in "abcdefg"]))]),
        "notebook", "Accuracy"),
    "after an attempt that was interrupted": (
        notebook([html_output(progress(0.3, range(10, 40, 10)))], [html_output(progress())]),
        "notebook", "rewards / correctness_reward_func / mean"),
    "printed lines": (notebook([stream("Loading\n" + KEYS)]), "printed output of a notebook",
        "acc"),
    "printed dicts": (notebook([stream(DICTS)]), "printed output of a notebook", "reward"),
    "printed by verl": (notebook([], [stream(VERL)]), "printed output of a notebook",
        "critic/score/mean"),
    "a printed bar": (notebook([stream(BARS)]), "printed output of a notebook", "acc"),
    "a saved page": ("<!DOCTYPE html>\n<html><body>" + progress() + "</body>", "tables of HTML",
        "rewards / corr"),
    "a table alone": (frame(), "tables of HTML", "eval_acc"),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_a_notebook_is_read(kind: str, tmp_path: Path) -> None:
    text, read_as, pass_rate = READ[kind]
    path = tmp_path / ("run.html" if read_as == "tables of HTML" else "run.ipynb")
    path.write_text(text)
    history = read_history(str(path), Columns(), None)
    assert history.origin.format == read_as
    assert history.origin.pass_rate.startswith(pass_rate)
    assert [item.pass_rate for item in history.evaluations] == [rate(s) for s in STEPS]


def test_two_trainings_of_a_notebook_are_two_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.ipynb"
    path.write_text(notebook([html_output(progress())], [], [html_output(progress(0.4))]))
    with pytest.raises(UserError, match="holds 2 runs; choose one of cell-2, cell-4"):
        read_history(str(path), Columns(), None)
    chosen = read_history(str(path), Columns(), "cell-4")
    assert chosen.evaluations[-1].pass_rate == rate(120, 0.4)


@pytest.mark.parametrize(
    "text",
    [
        notebook([]),
        notebook([stream("Loading the model\nDone.\n")]),
        notebook([html_output(table(["Step", "Training Loss"], [[1, 0.2], [2, 0.1]]))]),
        '{"cells": 7, "nbformat": 4}',
        '{"cells": [7, {"outputs": 7}, {"outputs": [7, {"data": 7}]}], "nbformat": 4}',
    ],
    ids=["no outputs", "no metrics", "losses alone", "no cells", "odd cells"],
)
def test_a_notebook_without_a_curve_is_one_sentence_with_the_way_out(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.ipynb"
    path.write_text(text)
    with pytest.raises(
        UserError,
        match=r"no output in this notebook .* write trainer\.state\.log_history to a JSON",
    ):
        read_history(str(path), Columns(), None)


def test_half_a_notebook_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "run.ipynb"
    path.write_text('{"nbformat": 4, "cells": [{"outputs": [')
    with pytest.raises(UserError, match="is not a whole notebook; save it again"):
        read_history(str(path), Columns(), None)
