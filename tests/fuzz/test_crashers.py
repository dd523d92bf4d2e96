"""Inputs that once made a parser raise, hang or grow are read or refused as documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.fuzz.outcome import try_input
from testkit.fuzz.target import CRASHERS, STORED
from testkit.fuzz.targets.lookup import find_target


@pytest.mark.parametrize(
    "file", sorted(STORED.glob(f"*/{CRASHERS}/*")), ids=lambda file: f"{file.parts[-3]}-{file.name}"
)
def test_a_crasher_is_fine_now(file: Path) -> None:
    assert try_input(find_target(file.parts[-3]), file.read_bytes()) is None
