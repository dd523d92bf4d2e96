"""One JSON document with several runs: which one is asked, and each can be chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.formats.history import read_history

STEPS = range(1, 25)
GAINS = {"base_lr1": 0.3, "base_lr2": 0.6, "teacher": 0.5}


def rate(step: int, gain: float) -> float:
    return round(0.05 + gain * step / (step + 12), 4)


def rows(gain: float, name: str = "critic/score/mean") -> list[dict[str, Any]]:
    return [
        {"step": s, name: rate(s, gain), "actor/entropy": 1.2, "timing_s/step": 140.5}
        for s in STEPS
    ]


def evaluations(gain: float) -> list[dict[str, Any]]:
    return [{"step": s, "val-core/x/acc/mean@1": rate(s, gain)} for s in STEPS]


def columns(gain: float) -> dict[str, list[float]]:
    return {
        "step": list(STEPS),
        "reward": [rate(s, gain) for s in STEPS],
        "loss": [0.1] * len(STEPS),
    }


def runs(made: Any) -> dict[str, Any]:
    return {name: made(gain) for name, gain in GAINS.items()}


DOCUMENTS: dict[str, Any] = {
    "steps below names": runs(
        lambda g: {"started": "Mon Mar 02", "steps": rows(g), "vals": [], "src": "a.out"}),
    "lists": runs(rows),
    "columns": runs(columns),
    "columns below a name": runs(lambda g: {"args": {"lr": [1, 2]}, "history": columns(g)}),
    "below one name": {"config": {"betas": [0.9, 0.95]}, "runs": runs(rows)},
    "two levels below": {"meta": {"date": "x"},
        "results": runs(lambda g: {"metrics": {"log": rows(g, "reward")}})},
    "rows by step": runs(lambda g: {str(s): {"reward": rate(s, g), "loss": 0.1} for s in STEPS}),
    "log histories": runs(lambda g: {"global_step": 24, "log_history": rows(g, "reward")}),
    "training and evaluation": runs(
        lambda g: {"train": rows(0.1, "reward"), "eval": evaluations(g)}),
    "steps and evaluations": runs(lambda g: {"steps": rows(0.1), "vals": evaluations(g)}),
    "a list of runs": [
        {"name": name, "lr": 1e-6, "history": rows(gain)} for name, gain in GAINS.items()],
    "a list of runs below a name": {
        "runs": [{"run_id": n, "metrics": rows(g, "reward")} for n, g in GAINS.items()]},
    "a list of runs with columns": [{"id": name, **columns(gain)} for name, gain in GAINS.items()],
    "runs by number": {
        str(k): {"name": n, "log": rows(g)} for k, (n, g) in enumerate(GAINS.items())},
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_runs_of_a_document_are_asked_and_chosen(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(DOCUMENTS[kind], indent=1))
    names = ["0", "1", "2"] if kind == "runs by number" else list(GAINS)
    with pytest.raises(
        UserError, match=f"holds 3 runs; choose one of {', '.join(names)} with --where run=NAME"
    ):
        read_history(str(path), Columns(), None)
    for name, gain in zip(names, GAINS.values(), strict=True):
        history = read_history(str(path), Columns(), name)
        assert [item.pass_rate for item in history.evaluations] == [rate(s, gain) for s in STEPS]
        assert [item.compute for item in history.evaluations] == list(STEPS)


ONE_RUN: dict[str, tuple[Any, str]] = {
    "training and evaluation": ({"train": rows(0.1, "reward"), "eval": evaluations(0.4)},
        "eval/val-core/x/acc/mean@1"),
    "one name": ({"my-run": {"steps": rows(0.4)}}, "critic/score/mean"),
    "a list of one": ([{"name": "my-run", "history": rows(0.4)}], "critic/score/mean"),
    "rows with lists": ([{**row, "rewards": [0.1, 0.2], "lengths": [5, 6]} for row in rows(0.4)],
        "critic/score/mean"),
    "settings that look like tables": (
        {"config": {"a": {"step": [1, 2], "acc": [0, 1]}, "b": {"step": [1, 2], "acc": [0, 1]}},
            "log": rows(0.4)},
        "critic/score/mean"),
    "scalars by tag": (
        {"reward": [{"step": s, "value": rate(s, 0.4)} for s in STEPS],
            "loss": [{"step": 1, "value": 1}]},
        "value"),
    "rows by step": ({str(s): {"reward": rate(s, 0.4)} for s in STEPS}, "reward"),
    "measures apart": (
        {"rewards": [{"step": s, "reward": 0.5} for s in range(1, 99)],
            "accuracies": [{"step": s, "accuracy": rate(s, 0.4)} for s in STEPS],
            "samples": [{"prompt": "p", "score": 0.1}] * 200},
        "accuracy"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ONE_RUN)
def test_a_document_of_one_run_is_read_without_a_question(kind: str, tmp_path: Path) -> None:
    document, pass_rate = ONE_RUN[kind]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    history = read_history(str(path), Columns(), None)
    assert history.origin.pass_rate == pass_rate
    assert [item.pass_rate for item in history.evaluations] == [rate(s, 0.4) for s in STEPS]
