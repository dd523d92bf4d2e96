"""A proof: every answer that is too much for the math parser costs its deadline and is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade
from tests.tasks.hanging_answers import HANGING, verdict


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(Grading(deadline_seconds=1.0, sandbox="unsafe"))) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", HANGING)
def test_every_answer_that_is_too_much_for_the_parser_is_wrong(sandbox: Sandbox, name: str) -> None:
    assert verdict(sandbox, HANGING[name]) == Grade(0.0, "wrong")
    assert verdict(sandbox, r"\boxed{42}") == Grade(1.0, "ok")
