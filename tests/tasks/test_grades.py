"""Completions and the grades they should get, one table for each kind of built-in verifier.

`grades/NAME.tsv`: grade, reference, completion, with a tab between two; ⏎ is a line's end. A new
case is a new line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcast.tasks.verifiers import Grade, find_verifier, run_verifier

FOLDER = Path(__file__).parent / "grades"
VERIFIERS = {"math": "math", "arithmetic": "arithmetic", "countdown": "countdown", "exact": "exact"}
VERIFIERS |= {"knights_and_knaves": "knights-and-knaves"}


@pytest.mark.parametrize(("table", "verifier"), VERIFIERS.items())
def test_completions_get_the_grades_of_the_table(table: str, verifier: str) -> None:
    otherwise = []
    for number, line in enumerate((FOLDER / f"{table}.tsv").read_text().splitlines(), start=1):
        grade, reference, completion = line.split("\t")
        assert grade in ("0", "1")
        decoded = json.loads(reference) if reference.startswith("{") else reference
        given = run_verifier(
            find_verifier(verifier), completion.replace("⏎", "\n"), json.dumps(decoded)
        )
        if given != (Grade(1.0, "ok") if grade == "1" else Grade(0.0, "wrong")):
            otherwise.append((number, line, given))
    assert otherwise == []


def test_every_table_is_read_and_has_twenty_cases() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == VERIFIERS.keys()
    for table in VERIFIERS.keys() - {"exact"}:
        assert len((FOLDER / f"{table}.tsv").read_text().splitlines()) >= 20, table
