"""What a mutant's run says of its tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.suite.first_failure import TIME_IS_OVER, first_failure


@pytest.mark.parametrize(
    ("text", "seconds", "failure"),
    [
        ("def test_one(): ...", 120.0, None),
        ("def test_one(): assert False", 120.0, "test_some.py::test_one"),
        ("import pytest; pytest.skip('a reason', allow_module_level=True)", 120.0, None),
        ("import absent", 120.0, "test_some.py"),
        ("import time\ndef test_one(): time.sleep(150)", 1.0, TIME_IS_OVER),
    ],
)
def test_the_first_failure_of_a_file(
    tmp_path: Path, text: str, seconds: float, failure: str | None
) -> None:
    (tmp_path / "test_some.py").write_text(text)
    environment = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }
    assert first_failure(["test_some.py"], [], tmp_path, environment, seconds) == failure
