"""Each answer of the table of cases gets the grade that it deserves, in a real sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.protections import missing
from tests.tasks.code_cases import BLOCKS, TEXTS, VALUES, Case

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {' and '.join(missing())}")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(Grading(deadline_seconds=120.0, seconds_per_test=60.0))
    yield made
    made.close()


@pytest.mark.parametrize("case", [*BLOCKS, *VALUES, *TEXTS], ids=lambda case: case.name)
def test_an_answer_gets_the_grade_that_it_deserves(sandbox: Sandbox, case: Case) -> None:
    grade = sandbox.grade("code", case.answer, json.dumps(case.reference))
    assert (grade.reward, grade.status) == (float(case.grade), "ok" if case.grade else "wrong"), grade.failure
