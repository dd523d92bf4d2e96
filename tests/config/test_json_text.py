"""JSON for programs, and that every command writes it in one place."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from rollcast.config.json_text import to_json

SERVICES = Path(__file__).parents[2] / "services" / "rollcast"


def test_what_json_lacks_is_null() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -np.inf, "d": np.float64("nan")}, "e": 2}
    answer = json.loads(to_json(value, indent=1), parse_constant=pytest.fail)
    assert answer == {"a": [None, [None, 1.5]], "b": {"c": None, "d": None}, "e": 2}


def test_no_command_writes_json_by_itself() -> None:
    folders = (SERVICES / "cli", SERVICES / "trainer" / "replay")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    assert len(files) > 50
    assert not [file for file in files if re.search(r"json\.dumps?\(", file.read_text())]
