"""`python -m benchmarks.gpu` with parts that hang, start processes or die: real processes, really
ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.only_these import ROOT

STAND_IN = Path(__file__).with_name("stand_in_part.sh")
COMMAND = """
import sys
from benchmarks.gpu import __main__ as command
from testkit.gpu.parts import Part
from testkit.gpu.proof import part_process
parts = (part.split("=") for part in sys.argv.pop(1).split(","))
command.PARTS = {name: Part("", float(seconds)) for name, seconds in parts}
command.ENDING_SECONDS = 1.0
part_process.PROGRAM = ("sh", sys.argv.pop(1))
sys.exit(command.main())
"""
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the command that has ended."""

    code: int
    figures: dict[str, dict[str, Any]]
    """Printed, by part, in order."""
    said: str


class Folder:
    """Calls with one folder of results, and what the parts did in them."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "results"
        self._trace = folder / "trace"

    def start(self, parts: str, *arguments: str) -> subprocess.Popen[str]:
        """parts: NAME=EXPECTED_SECONDS, separated by commas."""
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                COMMAND,
                parts,
                str(STAND_IN),
                "--small",
                "--out",
                str(self.results),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ
            | {
                "PROOF_TRACE": str(self._trace),
                "PYTHONPATH": f"{ROOT / 'services'}{os.pathsep}{ROOT}",
            },
        )

    def call(self, parts: str, *arguments: str) -> Call:
        process = self.start(parts, *arguments)
        out, said = process.communicate(timeout=SECONDS)
        records = [json.loads(line) for line in out.splitlines()]
        figures = {
            record["benchmark"].removeprefix("gpu-"): record["figures"] for record in records
        }
        return Call(process.returncode, figures, said)

    def kept(self, part: str) -> dict[str, Any]:
        figures: dict[str, Any] = json.loads((self.results / f"gpu-{part}.json").read_text())[
            "figures"
        ]
        return figures

    @property
    def begun(self) -> list[str]:
        """Names of the parts in the order in which their processes began."""
        return [line["part"] for line in self._lines()]

    def alive(self) -> list[int]:
        """Processes of all parts that run."""
        pids = [pid for line in self._lines() for pid in line["processes"]]
        return [pid for pid in pids if psutil.pid_exists(pid)]

    def _lines(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self._trace.read_text().splitlines()]
            if self._trace.exists()
            else []
        )


def test_a_part_that_hangs_is_ended_with_all_it_started_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    call = folder.call("hangs=1,leaves=1,dies=1,works=1", "--part-minutes", "0.07")
    assert folder.begun == ["hangs", "leaves", "dies", "works"]
    assert call.figures["hangs"]["failed"] == "hangs took longer than 0.07 minutes"
    assert call.figures["hangs"]["rows"] == ["so far"]
    assert call.figures["leaves"]["rows"] == ["leaves"]
    assert call.figures["dies"]["failed"].startswith("dies ended with exit code -9")
    assert call.figures["works"]["rows"] == ["works"]
    assert call.code == 1
    assert folder.alive() == []


def test_a_second_call_makes_what_is_missing_and_repeats_a_failure_only_if_asked(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    parts = "fails=1,works=1,misses=1"
    assert folder.call(parts, "fails", "works").code == 1
    assert folder.kept("fails") | {"seconds": 0} == {
        "small": True,
        "rows": ["before"],
        "failed": "fails: ValueError: it does not fit",
        "seconds": 0,
    }
    second = folder.call(parts)
    assert list(second.figures) == ["misses"]
    assert second.code == 1  # for its missed target
    assert folder.call(parts).code == 1, "the folder holds a part that failed"
    assert list(folder.call(parts, "--again").figures) == ["fails"]
    assert folder.begun == ["fails", "works", "misses", "fails"]


def test_the_whole_ends_in_time_and_begins_nothing_that_does_not_fit(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    parts = "hangs=1,works=30"
    first = folder.call(parts, "--minutes", "0.08")
    assert folder.begun == ["hangs"]
    assert "when --minutes were over" in folder.kept("hangs")["cut"]
    assert folder.kept("hangs")["rows"] == ["so far"]
    assert "works is left for another call: it takes about 30 s" in first.said
    assert folder.alive() == []
    folder.call(parts, "--minutes", "0.03")
    assert folder.begun == ["hangs"], "what was cut does not fit into less time than it had"


def test_results_are_there_when_the_command_is_ended_and_no_process_is_left(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    process = folder.start("works=1,hangs=1")
    deadline = time.monotonic() + SECONDS
    while folder.begun != ["works", "hangs"] or not folder.alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert folder.kept("works")["rows"] == ["works"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert folder.alive() == []


def test_minutes_that_are_none_are_refused(tmp_path: Path) -> None:
    for option in ("--minutes", "--part-minutes"):
        for value in ("0", "-1", "nan", "inf"):
            call = Folder(tmp_path).call("works=1", option, value)
            assert call.code == 2
            assert f"{option} {value}: must be above 0" in call.said
