"""Each answer of the table of cases gets the grade that it deserves, in a real sandbox."""

from __future__ import annotations

import json

import pytest

from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.definitions import undefined_names
from tests.tasks.code_cases import BLOCKS, TEXTS, VALUES, Case

pytestmark = pytest.mark.protections


@pytest.mark.parametrize("cases", [BLOCKS, VALUES, TEXTS], ids=["blocks", "values", "texts"])
def test_answers_get_the_grades_that_they_deserve(code_sandbox: Sandbox, cases: list[Case]) -> None:
    otherwise = []
    for case in cases:
        grade = code_sandbox.grade("code", case.answer, json.dumps(case.reference))
        if (grade.reward, grade.status) != (float(case.grade), "ok" if case.grade else "wrong"):
            otherwise.append((case.name, grade))
    assert otherwise == []


def test_a_name_that_only_a_function_binds_is_undefined_elsewhere() -> None:
    assert undefined_names(
        "def check():\n    solution = 1\n    return solution\nprint(solution)"
    ) == {"solution"}
