"""What a call of pytest reports of its time, asked of a real call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testkit.record import ROOT
from testkit.suite.measurement import FileSeconds, room_of_test, shares_of_rooms

CONFTEST = """
from pathlib import Path
from testkit.suite.measurement import Deadline, Measurements, ProcessorTime
def pytest_configure(config):
    config.pluginmanager.register(ProcessorTime())
    config.pluginmanager.register(Deadline({stop_at}))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measurements(Path("report.json"), {stop_at}))
"""
TESTS = """
import subprocess, sys, time
import pytest
BUSY = "import time; end = time.process_time() + 0.3\\nwhile time.process_time() < end: pass"
def test_child(): subprocess.run([sys.executable, "-c", BUSY], check=True)
def test_wait(): time.sleep(0.3)
def test_fails(): assert False
@pytest.mark.skip(reason="a reason")
def test_skipped(): pass
"""


def run_pytest(folder: Path, stop_at: str, *arguments: str) -> tuple[int, dict[str, object]]:
    (folder / "conftest.py").write_text(CONFTEST.format(stop_at=stop_at))
    (folder / "test_some.py").write_text(TESTS)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "services")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", ".", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
    )
    return done.returncode, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_report_has_the_seconds_and_failures_of_each_file(tmp_path: Path, processes: str) -> None:
    code, report = run_pytest(tmp_path, "float('inf')", "-n", processes)
    assert code == 1
    assert report["failed_tests"] == ["test_some.py::test_fails"]
    assert report["stopped"] is False
    files = report["files"]
    assert isinstance(files, dict)
    measured = files["test_some.py"]
    assert (measured["tests"], measured["failed"], measured["skipped"]) == (4, 1, 1)
    assert measured["wall_seconds"] >= 0.6
    assert measured["processor_seconds"] >= 0.3


def test_no_test_begins_after_the_end(tmp_path: Path) -> None:
    code, report = run_pytest(tmp_path, str(time.time() - 1.0), "-n", "1")
    assert code == 2
    assert report["stopped"] is True
    files = report["files"]
    assert isinstance(files, dict)
    assert files["test_some.py"]["tests"] < 4


def test_rooms_share_the_whole() -> None:
    files = {"tests/a/b/test_x.py": FileSeconds(1, 3.0), "tests/a/test_y.py": FileSeconds(1, 0.0)}
    files["tests/test_z.py"] = FileSeconds(1, 1.0)
    assert [line.split() for line in shares_of_rooms(files)] == [
        ["3.0", "s", "75%", "tests/a"],
        ["1.0", "s", "25%", "tests"],
    ]
    assert room_of_test("tests/test_z.py") == "tests"
