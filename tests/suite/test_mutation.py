"""Mutants change one line, compile, and are the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.record import ROOT
from testkit.suite.mutation import Mutant, draw_mutants, mutants_of_file

SOURCE = """\
LIMIT = 3


def clipped(values: list[int], is_strict: bool) -> int:
    total = 0
    for value in values:
        if value < LIMIT and not is_strict:
            total = total + value
    return total * 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_operators_constants_and_branches_of_functions_are_changed(
    file: Path, tmp_path: Path
) -> None:
    changed = [mutant.after.strip() for mutant in mutants_of_file(file, tmp_path)]
    assert changed == [
        "total = 1",
        "if not (value < LIMIT and not is_strict):",
        "if value < LIMIT or not is_strict:",
        "if value <= LIMIT and not is_strict:",
        "total = total - value",
        "return total * 3",
        "return total / 2",
    ]


def test_a_mutant_is_written_into_its_line_only(file: Path, tmp_path: Path) -> None:
    mutant = mutants_of_file(file, tmp_path)[0]
    mutant.apply(tmp_path)
    assert file.read_text() == SOURCE.replace("    total = 0\n", "    total = 1\n")
    assert not mutant.is_in(tmp_path)
    with pytest.raises(
        ValueError, match=r"module\.py has no line 'total = 0', which was drawn at 5"
    ):
        mutant.apply(tmp_path)


def test_in_another_version_the_nearest_of_equal_lines_is_the_one(
    file: Path, tmp_path: Path
) -> None:
    mutant = mutants_of_file(file, tmp_path)[0]
    equal = "def other() -> None:\n    total = 0\n"
    moved = "\n\n" + SOURCE
    file.write_text(moved + equal)
    assert mutant.is_in(tmp_path)
    mutant.apply(tmp_path)
    assert file.read_text() == moved.replace("total = 0", "total = 1") + equal


def test_a_seed_draws_the_same_mutants_of_the_rooms_with_weight() -> None:
    mutants = draw_mutants(ROOT, {"recipe": 1.0, "scaling": 1.0, "cli": 0.0}, 6, seed=3)
    assert mutants == draw_mutants(ROOT, {"recipe": 1.0, "scaling": 1.0, "cli": 0.0}, 6, seed=3)
    assert {Path(mutant.file).parts[2] for mutant in mutants} <= {"recipe", "scaling"}
    assert all(isinstance(mutant, Mutant) and mutant.before != mutant.after for mutant in mutants)
