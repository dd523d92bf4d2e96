"""The verifier `math` on references as data sets write them, in the surface forms of
benchmarks/math_verifier.
"""

from __future__ import annotations

import json
import random
from itertools import cycle

import pytest

from rollcast.tasks.math_verifier import math
from testkit.tasks.math_answers import FORMS, _may_be_equal, data_folder, references, wrong_answers

REFERENCES = (
    "18",
    "70000",
    "-1.5",
    "\\frac{3}{56}",
    "11\\sqrt2",
    "\\left( 3, \\frac{\\pi}{2} \\right)",
    "\\text{Evelyn}",
    "x^3+3x-6",
    "[-2,7]",
    "\\$18.90",
    "\\$32,\\!348",
    "90^\\circ",
    "1,-2",
)


@pytest.mark.parametrize("reference", REFERENCES)
def test_five_surface_forms_are_accepted_and_other_references_are_not(reference: str) -> None:
    assert len(FORMS) == 5
    for form, written in FORMS.items():
        assert math(written(reference), reference) == 1.0, form
    forms = cycle(FORMS.items())
    for other in REFERENCES:
        form, written = next(forms)
        if other != reference:
            assert math(written(other), reference) == 0.0, (form, other)


def test_wrong_answers_are_drawn_as_asked_and_told_from_right_ones_without_the_verifier() -> None:
    drawn = wrong_answers(["18", "1/2", "\\frac{3}{4}"], 200, random.Random(0))
    assert len(drawn) == 200
    assert {item.answer for item in drawn if item.reference == "18"} >= {"17", "19", "-18", "180"}
    for same in (
        ("0.5", "1/2"),
        ("18", "18.0"),
        ("\\dfrac{1}{2}", "\\frac12"),
        ("( 1,2)", "\\left(1,2\\right)"),
    ):
        assert _may_be_equal(*same)
    assert not _may_be_equal("18", "180")


@pytest.mark.shared_data
@pytest.mark.skipif(data_folder() is None, reason="ROLLCAST_SHARED_DATA names no task sets")
@pytest.mark.parametrize("name", ["gsm8k", "math-500"])
def test_references_of_the_real_sets(name: str) -> None:
    folder = data_folder()
    assert folder is not None
    answers = [str(json.loads(text)) for text in references(folder, name)]  # type: ignore[arg-type]
    for answer in answers[::20]:
        for form, written in FORMS.items():
            assert math(written(answer), answer) == 1.0, (form, answer)
    for item in wrong_answers(answers, 40, random.Random(1)):
        assert math(FORMS["boxed"](item.answer), item.reference) == 0.0, item
