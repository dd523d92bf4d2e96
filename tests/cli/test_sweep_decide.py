"""`rollcast sweep decide` as a program that another one asks."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rollcast.scaling.sweep.prior import learned_sweep_prior
from tests.cli.command import rollcast

QUESTION: dict[str, Any] = {
    "family": "7",
    "metric": "heldout",
    "arms": [
        {"name": "a", "spent": 0.35, "readings": [[10, 0.31, None], [20, 0.36, 0.02]]},
        {"name": "b", "spent": 0.05, "readings": [[0, 0.29, None]]},
    ],
    "end": 100,
    "budget_left": 1.2,
    "last": False,
    "prior": None,
}


def ask(monkeypatch: pytest.MonkeyPatch, *lines: str) -> subprocess.CompletedProcess[str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return rollcast("sweep", "decide")


def test_an_answer_comes_before_the_next_question_is_asked() -> None:
    command = [sys.executable, "-m", "rollcast.cli.main", "sweep", "decide"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for _ in range(2):
            program.stdin.write(json.dumps(QUESTION) + "\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["choose"] in ("a", "b")
        program.stdin.close()
        assert program.wait(timeout=30) == 0


def test_each_line_is_answered_by_one_and_the_last_question_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = ask(monkeypatch, json.dumps(QUESTION), "", json.dumps(QUESTION | {"last": True}))
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["run"] in (["a"], ["b"])
    assert last["run"] == []
    for answer in (first, last):
        assert answer["choose"] == max(answer["level"], key=answer["level"].get)
        assert sum(answer["chance"].values()) == pytest.approx(1.0)


def test_two_arms_of_one_name_are_seeds_of_one_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second seed that reads the same makes the arm surer than the first alone."""
    arms = QUESTION["arms"]
    done = ask(monkeypatch, json.dumps(QUESTION), json.dumps(QUESTION | {"arms": [*arms, arms[0]]}))
    one, two = map(json.loads, done.stdout.splitlines())
    assert list(two["chance"]) == ["a", "b"]
    assert two["chance"]["a"] != one["chance"]["a"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "the line: Invalid JSON"),
        ("3", "the line: Input should be an object"),
        (
            json.dumps(QUESTION | {"arms": QUESTION["arms"][:1]}),
            "arms: Tuple should have at least 2",
        ),
        (json.dumps(QUESTION | {"end": 0}), "end: Input should be greater than"),
        (json.dumps(QUESTION | {"end": 1e-300}), "end: Input should be greater than"),
        (json.dumps(QUESTION | {"budget_left": 1e300}), "budget_left: Input should be less than"),
        (json.dumps(QUESTION | {"prior": "/nowhere"}), "/nowhere: is no prior"),
    ],
)
def test_a_line_that_is_no_question_ends_it_in_one_sentence(
    line: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ask(monkeypatch, json.dumps(QUESTION), line)
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) == 1, "the question before is answered"
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_prior_of_the_question_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prior.json"
    certain = replace(learned_sweep_prior(), arm_path=0.001, arm_trend=0.001, reading=0.001)
    file.write_text(json.dumps({"sweep": asdict(certain)}))
    done = ask(monkeypatch, json.dumps(QUESTION), json.dumps(QUESTION | {"prior": str(file)}))
    usual, sure = map(json.loads, done.stdout.splitlines())
    assert sure["chance"] != usual["chance"]
