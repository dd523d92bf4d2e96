"""Records of the run folder on a disk that is full, and behind a line that a kill tore."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rollcast.cli.views import Follower
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.curves.curve_source import tell
from rollcast.curves.formats.recognise import read_sheet
from rollcast.curves.sources.run_folder import RunFolder
from rollcast.local.status import StatusReader
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, TaskMark, as_json
from rollcast.runfolder.writing import append_line
from testkit.system.audit import check_every_task_once, read_lines

WRITE = """
import sys
from pathlib import Path
from rollcast.config.errors import PassingError
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord
from rollcast.runfolder.writing import append_line

path = Path(sys.argv[1])
append_line(path, {"step": 1})
limit(20_000)
try:
    append_line(path, {"step": 2, "text": "x" * 30_000})
except PassingError as error:
    print(error)
limit(None)
append_line(path, {"step": 3})
print(path.read_text())
"""
OF_A_FILE = """
import resource
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited if size is None else (size, unlimited[1]))
"""
OF_A_DISK = """
def limit(size):
    "The disk is small from the beginning."
"""


def test_the_accountant_reads_a_run_that_died_before_its_first_checkpoint() -> None:
    """The mark of a restart has no version then: empty fields are left out."""
    marks = [
        TaskMark("dispatched", tasks=[1]),
        TaskMark("resumed"),
        TaskMark("dispatched", tasks=[1, 2]),
    ]
    assert check_every_task_once(
        [as_json(mark) for mark in [*marks, TaskMark("used", tasks=[1])]]
    ) == {
        "used": 1,
        "open": 1,
    }


def written(limit: str, path: Path, prefix: list[str]) -> list[str]:
    """The lines of a file to which a second record was too long for the limit."""
    command = [*prefix, sys.executable, "-c", limit + WRITE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said, *lines = done.stdout.splitlines()
    assert said.startswith(f"folder: {path} cannot be written (")
    return [line for line in lines if line]


def test_a_file_that_can_grow_no_further_takes_the_next_record_on_a_line_of_its_own(
    tmp_path: Path,
) -> None:
    """The kernel writes what fits and refuses the rest, as on a full disk."""
    assert written(OF_A_FILE, tmp_path / "steps.jsonl", []) == ['{"step": 1}', '{"step": 3}']


def test_a_full_disk_takes_the_next_record_on_a_line_of_its_own(tmp_path: Path) -> None:
    """A file system of 16 KiB: what a long record had no room for must not keep the room from the
    next one.
    """
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount += ['mount -t tmpfs -o size=16k none "$0" && exec "$@"', str(tmp_path)]
    if (
        not shutil.which("unshare")
        or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine lets nobody mount a file system")
    assert written(OF_A_DISK, tmp_path / "steps.jsonl", mount) == ['{"step": 1}', '{"step": 3}']


def evaluation(step: int) -> dict[str, Any]:
    record = {
        "run": "r",
        "dataset": "d",
        "incarnation": 1,
        "step": step,
        "pass_rate": 0.5,
        "standard_error": 0.01,
    }
    return {**record, "compute_device_hours": step / 10}


@cache
def config_of(folder: Path) -> RunConfig:
    settings = {"run": folder.name, "folder": str(folder.parent), "model": {"path": "m"}}
    return parse_run_config(settings, source="test")


def steps_of_forecaster(path: Path) -> tuple[list[int], int]:
    reading = RunFolder(path.parent, "r").read()
    return [item.step for item in reading.evaluations], reading.skipped["bad_line"]


def steps_of_status(path: Path) -> tuple[list[int], int]:
    reader = StatusReader(config_of(path.parent))
    return [item.step for item in reader.read().evaluations], reader.num_skipped


def steps_of_lines(path: Path) -> tuple[list[int], int]:
    reader = RecordFile(path, EvaluationRecord)
    return [record.step for record in reader.read()], reader.num_skipped


def steps_of_commands(path: Path) -> tuple[list[int], int]:
    lines = len(path.read_text().splitlines())
    sheet = read_sheet(str(path), print)
    return list(sheet.columns["step"].fields), lines - sheet.num_rows


def steps_of_audit(path: Path) -> tuple[list[int], int]:
    lines = len(path.read_text().splitlines())
    rows = read_lines(path)
    return [row["step"] for row in rows], lines - len(rows)


READERS = [steps_of_forecaster, steps_of_status, steps_of_lines, steps_of_commands, steps_of_audit]


@pytest.mark.parametrize("steps_of", READERS)
def test_a_line_that_a_kill_tore_at_any_byte_costs_nothing_but_itself(
    steps_of: Callable[[Path], tuple[list[int], int]], tmp_path: Path
) -> None:
    path = tmp_path / "run" / "evaluations.jsonl"
    path.parent.mkdir()
    (path.parent / "format.json").write_text('{"format": 1}')
    whole = json.dumps(evaluation(20))
    for written_bytes in range(len(whole) + 2):
        path.unlink(missing_ok=True)
        append_line(path, evaluation(10))
        with path.open("a") as file:
            file.write((whole + "\n")[:written_bytes])
        append_line(path, evaluation(30))
        if written_bytes == 0:
            expected = [10, 30], 0
        elif written_bytes < len(whole):
            expected = [10, 30], 1
        else:
            expected = [10, 20, 30], 0
        assert steps_of(path) == expected, written_bytes


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run" / "evaluations.jsonl"
    path.parent.mkdir()
    path.write_text('{"step": 1, "pa')
    append_line(path, evaluation(2))
    read_sheet(str(path), tell)
    read_lines(path)
    said = capsys.readouterr()
    assert said.err == f"{path}: 1 line left out, line 1 is not a JSON object\n"
    assert said.out == f"{path}: 1 torn lines left out\n"
    follower = Follower(config_of(path.parent))
    assert "1 line of the run's files left out, no JSON object" in follower.news()
