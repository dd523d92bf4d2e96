"""A proof: over 200 programs that mean harm, graded for real, each followed by a good one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.tasks.hostile_programs import FAMILIES
from tests.tasks.hostile_gradings import (
    NEEDS_PROTECTIONS,
    Gradings,
    assert_harms_without_sandbox,
    gradings,
)

pytestmark = pytest.mark.timeout(300)
UNGUARDED = [
    *(("reading", number) for number in (0, 5, 23)),
    *(("writing", number) for number in (0, 15)),
    *(("network", number) for number in (0, 4, 6, 17)),
    *(("processes", number) for number in (6,)),
    *(("signals", number) for number in (5, 18)),
]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gradings]:
    with gradings(tmp_path_factory.mktemp("around"), lambda _: True, good_every=1) as made:
        yield made


@NEEDS_PROTECTIONS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_hostile_program_is_contained(graded: Gradings, family: str) -> None:
    assert graded.not_contained(family) == []


@NEEDS_PROTECTIONS
def test_every_good_program_after_one_is_graded_right(graded: Gradings) -> None:
    assert graded.good_statuses == {"ok"}


@NEEDS_PROTECTIONS
def test_nothing_is_left_of_all_of_them(graded: Gradings) -> None:
    graded.assert_nothing_is_left()


@pytest.mark.parametrize(("family", "number"), UNGUARDED)
def test_without_the_sandbox_they_get_through(tmp_path: Path, family: str, number: int) -> None:
    assert_harms_without_sandbox(tmp_path, family, number)
