"""Rollcast as a program of the benchmark: `python -m rollcast.cli.corpus [--priors FOLDER]`.

It is asked as a user asks it, through `rollcast.forecast`. With `--priors` the file REPOSITORY.json
(slash as __) is the prior of the runs of that repository.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from rollcast.cli.corpus.prior_files import prior_file
from rollcast.cli.corpus.protocol import Question
from rollcast.config.json_text import to_json
from rollcast.python import InputError, forecast

QUANTILE_NAMES = ("q05", "q25", "q50", "q75", "q95")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rollcast.cli.corpus")
    parser.add_argument("--priors", type=Path, help="folder with REPOSITORY.json (slash as __)")
    priors = parser.parse_args().priors
    for line in sys.stdin:
        number = json.loads(line)["id"]
        question = Question.model_validate_json(line)
        prior = None if priors is None else prior_file(priors, question.repository)
        print(to_json({"id": number, **answer(question, prior)}), flush=True)
    return 0


def answer(question: Question, prior: Path | None) -> dict[str, Any]:
    """The answer of Rollcast to a question, without its number."""
    try:
        # How the curve was read is of no interest here.
        with contextlib.redirect_stderr(io.StringIO()):
            return _answer(question, prior)
    except InputError as error:
        return {"refused": str(error)}


def _answer(question: Question, prior: Path | None) -> dict[str, Any]:
    run = forecast(
        _columns(question.curve), budget=question.budget, worth=question.worth, prior=prior
    )
    answer_fields: dict[str, Any] = {}
    if question.compute:
        stated = run.to_dict(at=question.compute)
        answer_fields["verdict"] = stated["verdict"]
        answer_fields["quantiles"] = [
            [at[name] for name in QUANTILE_NAMES] for at in stated["predictions"]
        ]
        if any(value is None for row in answer_fields["quantiles"] for value in row):
            raise InputError(f"{stated['verdict'].replace('_', ' ')}: no quantiles are given")
    if question.worth is not None:
        advice = run.advice()
        answer_fields["advice"] = {
            name: advice.get(name) for name in ("kind", "evaluations", "chance")
        }
    return answer_fields


def _columns(text: str) -> dict[str, list[float]]:
    header, *rows = csv.reader(io.StringIO(text))
    return {
        name: [float(row[column_index]) for row in rows] for column_index, name in enumerate(header)
    }


if __name__ == "__main__":
    sys.exit(main())
