"""A call of pytest ends in time, and what it did not run is no success."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import pytest

from testkit.suite import bytecode, prove, pytest_call
from testkit.suite.again_alone import read_record, run_again_alone
from testkit.suite.changes import ROOT
from testkit.suite.near import run_until
from testkit.suite.proofs import Proof
from testkit.suite.pytest_call import INTERRUPTED, SECONDS_KEPT_FREE, call_pytest, load_report

CONFTEST = """
from pathlib import Path
from testkit.suite.measurement import Deadline, Measurements, ProcessorTime
def pytest_addoption(parser):
    parser.addoption("--suite-report", type=Path)
    parser.addoption("--proofs")
    parser.addoption("--keep-order", action="store_true")
    parser.addoption("--stop-at", type=float, default=float("inf"))
def pytest_configure(config):
    config.pluginmanager.register(ProcessorTime())
    config.pluginmanager.register(Deadline(config.getoption("stop_at")))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measurements(config.getoption("suite_report"), config.getoption("stop_at")))
"""  # noqa: E501
FAILS_ONCE = """
import pytest
from pathlib import Path
@pytest.mark.parametrize("number", range(20))
def test_some(number):
    mark = Path(__file__).with_name("mark")
    if number == 0 and not mark.exists():
        mark.touch()
        assert False
"""
SLOW = """
import time, pytest
@pytest.mark.parametrize("number", range(5))
def test_slow(number):
    time.sleep(0.2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one test file, with a record of its own."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(bytecode, "ROOT", tmp_path)
    monkeypatch.setattr(pytest_call, "ROOT", tmp_path)
    monkeypatch.setattr(
        pytest_call,
        "run_again_alone",
        functools.partial(run_again_alone, record=tmp_path / "record.json"),
    )
    return tmp_path


def write_tests(folder: Path, text: str) -> None:
    (folder / "tests" / "test_some.py").write_text(text)


def test_a_failure_that_passes_alone_makes_no_success_of_a_call_that_was_cut_off(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_tests(folder, FAILS_ONCE)
    report = folder / "report.json"
    end = time.time() + SECONDS_KEPT_FREE - 1.0
    assert call_pytest(["tests"], report, end) == INTERRUPTED
    assert load_report(report)["stopped"]
    assert read_record(folder / "record.json") == ["tests/test_some.py::test_some[0]"]
    assert "the time is over: the other tests were not run" in capfd.readouterr().out


def test_the_same_failure_in_a_call_that_ran_every_test_fails_nothing(folder: Path) -> None:
    write_tests(folder, FAILS_ONCE)
    assert call_pytest(["tests"], folder / "report.json") == 0


def test_a_test_that_runs_at_the_end_is_ended(folder: Path) -> None:
    write_tests(folder, "import time\ndef test_long(): time.sleep(150)\n")
    assert call_pytest(["tests"], folder / "report.json", time.time() + 5.0) == INTERRUPTED


def test_a_proof_that_is_cut_off_is_named_and_stays_due(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_tests(folder, "def test_one(): ...\n")
    monkeypatch.setattr(prove, "CALL_REPORTS", folder)
    proof = Proof("small", "a sentence", (), ("tests/test_some.py",))
    assert prove.run_proofs([proof], time.time() + SECONDS_KEPT_FREE - 1.0) == INTERRUPTED
    assert (
        "proof small stays due: it failed, was cut off, or its files are not committed"
        in capfd.readouterr().out
    )


@pytest.mark.parametrize(
    ("text", "code"), [(SLOW, 0), (SLOW + "    assert number\n", 1), ("import absent", 1)]
)
def test_near_begins_no_test_after_its_time_and_names_the_files(
    folder: Path, capfd: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    write_tests(folder, text)
    (folder / "tests" / "test_later.py").write_text(SLOW)
    files = ["tests/test_some.py", "tests/test_later.py"]
    assert (
        run_until(
            time.time() - 1.0, files, ["--dist", "loadscope", "-n", "1"], folder / "report.json"
        )
        == code
    )
    assert (
        "1 test files were not begun and are left to `make test`: tests/test_"
        in capfd.readouterr().out
    )
    assert run_until(time.time() + 3600.0, files, [], folder / "report.json") == code
