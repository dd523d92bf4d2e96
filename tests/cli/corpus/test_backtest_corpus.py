"""`rollcast backtest --corpus`: the program of the documentation, Rollcast itself, and mistakes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

import rollcast as package
from rollcast.cli.corpus.curves import read_corpus
from rollcast.cli.corpus.prior_files import prior_file
from rollcast.cli.corpus.program import ForecasterProgram
from rollcast.cli.corpus.protocol import ForecasterAnswer, Question
from rollcast.cli.corpus.report import OWN_PROGRAM
from rollcast.cli.corpus.windows import make_windows
from tests.cli.command import refusal, rollcast
from tests.cli.corpus.small_corpus import write_corpus

PAGE = Path(__file__).parents[3] / "docs" / "forecast-measured.md"
NAMES = ("q05", "q25", "q50", "q75", "q95")


def documented_program(folder: Path) -> str:
    """The command of the program that the page shows."""
    [source] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "last_value.py").write_text(source)
    return shlex.join([sys.executable, str(folder / "last_value.py")])


def test_the_program_of_the_documentation_competes(tmp_path: Path) -> None:
    write_corpus(tmp_path / "curves")
    command = documented_program(tmp_path)
    answered = rollcast(
        "backtest", "--corpus", tmp_path / "curves", "--forecaster", command, "--json"
    )
    assert answered.returncode == 0, answered.stderr
    scores = json.loads(answered.stdout)
    # Of 16 readings from 0 a quarter shows three after the first: too few. Half shows eight.
    [cell] = scores["forecast"]["cells"]
    assert (cell["cell"], cell["num_windows"], cell["num_repositories"]) == ("heldout 0.5", 3, 3)
    assert cell["error"]["forecaster"] == cell["error"]["last"] > 0.0
    ends = {
        window.repository: (window.last, window.outcome)
        for window in make_windows(read_corpus(tmp_path / "curves"))
    }
    assert cell["error"]["last"] == pytest.approx(
        sum(abs(a - b) for a, b in ends.values()) / 3, abs=6e-5
    )
    assert cell["in90"] == pytest.approx(
        sum(abs(a - b) <= 0.1 for a, b in ends.values()) / 3, abs=6e-5
    )
    assert scores["forecast"]["decided_from_half"] == {"held": 0, "of": 3}
    advice = scores["advice"]
    assert (advice["num_questions"], advice["said_at_half"]["stop"], advice["refused"]) == (
        9,
        9,
        [],
    )
    assert (
        advice["utility"]["advice"]
        == advice["utility"]["always stop"]
        == {"at_each_worth": [0.0] * 3, "in_all": 0.0}
    )
    assert advice["utility"]["reference"]["in_all"] > 0.0


def test_without_json_every_figure_is_in_a_table(tmp_path: Path) -> None:
    write_corpus(tmp_path / "curves")
    shown = rollcast(
        "backtest", "--corpus", tmp_path / "curves", "--forecaster", documented_program(tmp_path)
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.splitlines() == [
        "forecasts: 3 ...",
        "advice: 9 ...",
        "simple methods: 3 ...",
    ]
    table = {re.split(r"  +", line)[0]: line for line in shown.stdout.splitlines()}
    assert table["decided from half"].endswith("0 of 3")
    assert table["always stop"].split()[-4:] == ["0.0"] * 4
    assert table["stop, said at half"].endswith("9 of 9")
    assert {
        "heldout 0.5",
        "pinball loss / best simple method",
        "90 % intervals that hold",
        "reference",
    } <= set(table)


def test_rollcast_answers_as_it_answers_a_user(tmp_path: Path) -> None:
    write_corpus(tmp_path / "curves")
    [window, *_] = make_windows(read_corpus(tmp_path / "curves"))
    compute = window.seen_curve.compute.tolist()
    pass_rate = window.seen_curve.pass_rate.tolist()
    text = window.source.beginning_as_csv(window.num_seen)
    forecast = Question(
        repository="one/climbs", metric="heldout", curve=text, compute=tuple(window.ahead)
    )
    advice = Question(
        repository="one/climbs", metric="heldout", curve=text, budget=16.0, worth=0.05
    )
    path = prior_file(tmp_path, "one/climbs")
    assert path.name == "one__climbs.json"
    path.write_text(json.dumps({"prior": {"asymptote": [0.9, 0.01]}}))
    medians = []
    for priors, prior in (((), None), (("--priors", str(tmp_path)), path)):
        asked = package.forecast(
            {"step": compute, "pass_rate": pass_rate}, budget=16.0, worth=0.05, prior=prior
        )
        stated = asked.to_dict(at=window.ahead)
        program = ForecasterProgram([*OWN_PROGRAM, *priors])
        try:
            answers = (program.ask(forecast), program.ask(advice))
        finally:
            program.close()
        check_answers(answers, stated, asked.advice())
        medians.append(answers[0].quantiles[0][2])
    assert medians[0] != medians[1], "the prior must matter here, or this test does not show it"


def check_answers(
    answers: tuple[ForecasterAnswer, ForecasterAnswer],
    stated: dict[str, object],
    advice: dict[str, object],
) -> None:
    forecast, given = answers
    predictions = stated["predictions"]
    assert isinstance(predictions, list)
    assert [list(row) for row in forecast.quantiles] == [
        [at[name] for name in NAMES] for at in predictions
    ]
    assert forecast.verdict == stated["verdict"]
    assert given.advice is not None
    assert given.advice.model_dump() == {
        name: advice[name] for name in ("kind", "evaluations", "chance")
    }


def test_a_question_that_rollcast_refuses_is_counted_not_fatal() -> None:
    text = "step,pass_rate\n1.0,0.2\n2.0,0.3\n3.0,0.4\n4.0,0.4\n5.0,0.4\n6.0,0.4\n"
    program = ForecasterProgram(OWN_PROGRAM)
    try:
        answer = program.ask(
            Question(repository="a", metric="train", curve=text, budget=-1.0, worth=0.1)
        )
    finally:
        program.close()
    assert answer.refused is not None
    assert "budget" in answer.refused


def test_a_program_that_ends_ends_the_benchmark_in_one_sentence(tmp_path: Path) -> None:
    write_corpus(tmp_path / "curves")
    (tmp_path / "dead.py").write_text("raise SystemExit(3)")
    command = shlex.join([sys.executable, str(tmp_path / "dead.py")])
    ended = rollcast("backtest", "--corpus", tmp_path / "curves", "--forecaster", command)
    assert (ended.returncode, ended.stdout) == (2, "")
    [error] = ended.stderr.splitlines()
    assert error.startswith("error: --forecaster ")
    assert "ended with exit code 3 before it answered" in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--corpus", "none"), "none: holds no curves"),
        (("--corpus", "none", "--forecaster", " "), "--forecaster: is empty; give a command"),
        (("--corpus", "none", "--forecaster", "'"), '--forecaster "\'": is not a command'),
        (
            ("--corpus", "none", "--forecaster", "a", "--priors", "b"),
            "priors are of Rollcast alone",
        ),
        (("curve.csv", "--corpus", "none"), "CURVE: has no meaning with --corpus; leave it out"),
        (("--corpus", "none", "--share", "0.5"), "--share: has no meaning with --corpus"),
        (
            ("--corpus", "none", "--pass-rate", "y"),
            "--compute and other columns: has no meaning with --corpus",
        ),
        (("curve.csv", "--forecaster", "a"), "--forecaster: has no meaning without --corpus"),
        (("curve.csv", "--priors", "a"), "--priors: has no meaning without --corpus"),
        ((), "CURVE, --corpus: both are absent; give one of them"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(
    arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refusal("backtest", *arguments)


def test_a_repository_without_a_prior_is_named(tmp_path: Path) -> None:
    write_corpus(tmp_path / "curves")
    for repository in ("one/climbs", "two/climbs"):
        prior_file(tmp_path, repository).write_text("{}")
    sentence = refusal("backtest", "--corpus", str(tmp_path / "curves"), "--priors", str(tmp_path))
    assert "lacks three__stays.json; add a prior for each repository" in sentence
