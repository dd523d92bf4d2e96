"""`make test` runs the few tests that failed next to others again, alone, and records those that
pass.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from testkit.record import ROOT
from testkit.suite.again_alone import MAX_TESTS, RECORD, read_record, run_again_alone, show_record
from testkit.suite.changes import git

PASSES_THE_SECOND_TIME = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range({number}))
def test_once(number):
    mark = Path(__file__).with_name(f"mark-{{number}}")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""
LEAVES_SOMETHING_BEHIND = """
import sys
def test_leaves(): sys.dont_write_bytecode = not sys.dont_write_bytecode
def test_alone(): assert not sys.dont_write_bytecode
def test_always(): assert False
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tests, without the plugins of this repository, whose imports take seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "services")]))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    return tmp_path


def test_a_test_that_passes_alone_is_recorded_and_does_not_fail_the_whole(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_some.py").write_text(PASSES_THE_SECOND_TIME.format(number=2))
    (folder / "mark-0").touch()
    (folder / "mark-1").touch()
    failed = ["test_some.py::test_once[0]", "test_some.py::test_once[1]"]
    record = folder / "record.json"
    assert run_again_alone(failed, record) == 0
    assert (
        "2 failed next to other tests and run again, alone: test_some.py::test_once[0]"
        in capfd.readouterr().out
    )
    assert read_record(record) == failed
    show_record(record)
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == 2
    assert all("must be fixed: test_some.py::test_once" in line for line in shown)


def test_a_test_that_fails_again_fails_the_whole_and_is_not_recorded(folder: Path) -> None:
    (folder / "test_some.py").write_text("def test_always():\n    assert False\n")
    record = folder / "record.json"
    assert run_again_alone(["test_some.py::test_always"], record) == 1
    assert read_record(record) == []


def test_one_that_fails_again_hides_no_other_that_passes_alone(folder: Path) -> None:
    """Each has a process of its own: the first would fail next to the second."""
    (folder / "test_some.py").write_text(LEAVES_SOMETHING_BEHIND)
    record = folder / "record.json"
    tests = ["test_some.py::test_leaves", "test_some.py::test_alone", "test_some.py::test_always"]
    assert run_again_alone(tests, record) == 1
    assert read_record(record) == ["test_some.py::test_alone", "test_some.py::test_leaves"]


def test_no_test_runs_alone_after_the_end(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_some.py").write_text("def test_quick(): ...\n")
    assert (
        run_again_alone(["test_some.py::test_quick"], folder / "record.json", end=time.time() - 1.0)
        == 1
    )
    assert (
        "alone it did not end within 0 seconds: test_some.py::test_quick" in capfd.readouterr().err
    )


@pytest.mark.parametrize("number", [0, MAX_TESTS + 1])
def test_many_failures_and_none_are_not_run_again(
    number: int, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_again_alone(
            [f"test_some.py::test_{index}" for index in range(number)], folder / "record.json"
        )
        == 1
    )
    assert capfd.readouterr().out == ""


def test_the_committed_record_is_empty() -> None:
    """A test that passed only alone is a fault: fix it, then take its id out.

    Until then each run shows it.
    """
    assert json.loads(git("show", f"HEAD:{RECORD.relative_to(ROOT)}")) == []
