"""SECURITY.md: every test that it names is there, and no secret of a run file is left out."""

from __future__ import annotations

import re
from pathlib import Path

from rollcast.config.run import SECRET_VARIABLES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_named_test_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) == TEXT.count("::") > 40
    for file, test in named:
        path = ROOT / file
        assert path.exists(), file
        assert re.search(rf"^(async )?def {test}\(", path.read_text(), re.MULTILINE), test


def test_every_row_has_its_test_or_says_that_it_has_none() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "| test |" not in line]
    assert len(rows) > 40
    without = [row for row in rows if "::" not in row and "no test" not in row]
    assert without == []


def test_every_secret_of_a_run_file_has_a_row() -> None:
    for group, setting in SECRET_VARIABLES.values():
        name = "Redis" if group == "redis" else f"`{group}.{setting}`"
        assert f"| {name}" in TEXT, name
