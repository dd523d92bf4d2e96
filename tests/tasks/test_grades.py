"""Completions and the grades they should get, one table for each kind of built-in verifier.

`grades/NAME.tsv`: grade, reference, completion, with a tab between two; ⏎ is a line's end. A new case is a new line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcast.tasks.verifiers import Grade, find_verifier, run_verifier

FOLDER = Path(__file__).parent / "grades"
VERIFIERS = {"math": "math", "arithmetic": "arithmetic", "countdown": "countdown", "exact": "exact"}
VERIFIERS |= {"knights_and_knaves": "knights-and-knaves"}


def cases() -> Iterator[tuple[str, str, str, str]]:
    for table, verifier in VERIFIERS.items():
        for line in (FOLDER / f"{table}.tsv").read_text().splitlines():
            grade, reference, completion = line.split("\t")
            yield verifier, grade, reference, completion.replace("⏎", "\n")


@pytest.mark.parametrize(("verifier", "grade", "reference", "completion"), list(cases()))
def test_a_completion_gets_the_grade_of_the_table(verifier: str, grade: str, reference: str, completion: str) -> None:
    assert grade in ("0", "1")
    decoded = json.loads(reference) if reference.startswith("{") else reference
    given = run_verifier(find_verifier(verifier), completion, json.dumps(decoded))
    assert given == (Grade(1.0, "ok") if grade == "1" else Grade(0.0, "wrong")), given.failure


def test_every_table_is_read_and_has_twenty_cases() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == VERIFIERS.keys()
    for table in VERIFIERS.keys() - {"exact"}:
        assert len((FOLDER / f"{table}.tsv").read_text().splitlines()) >= 20, table
