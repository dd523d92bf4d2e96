"""`make test` runs the few tests that failed next to others again, alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testkit import again_alone
from testkit.record import ROOT

ONCE = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range({number}))
def test_once(number):
    been = Path(__file__).with_name(f"been-{{number}}")
    was_there = been.exists()
    been.touch()
    assert was_there
"""
ALWAYS = "def test_always():\n    assert False\n"


def again(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Both calls, as the Makefile makes them; returns the second."""
    (folder / "test_some.py").write_text(source)
    # Without the other plugins of this repository, whose imports take seconds.
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }
    first = [sys.executable, "-m", "pytest", "-q", "--rootdir", "."]
    subprocess.run(first, cwd=folder, env=environment, capture_output=True, check=False)
    second = [sys.executable, "-m", "testkit.again_alone"]
    return subprocess.run(second, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_one_that_passes_alone_is_named_and_does_not_fail_the_whole(tmp_path: Path) -> None:
    second = again(tmp_path, ONCE.format(number=2))
    assert second.returncode == 0, second.stdout
    assert second.stdout.startswith("2 failed next to other tests and run again, alone: test_some.py::test_once[0], ")
    assert "2 passed" in second.stdout


def test_one_that_fails_again_fails_the_whole(tmp_path: Path) -> None:
    second = again(tmp_path, ALWAYS)
    assert second.returncode == 1
    assert "1 failed" in second.stdout


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    second = again(tmp_path, ONCE.format(number=again_alone.MAX_TESTS + 1))
    assert second.returncode == 1
    assert second.stdout == ""


def test_a_call_that_ran_no_test_stays_failed(tmp_path: Path) -> None:
    assert again(tmp_path, "import no_such_module_anywhere\n").returncode != 0
