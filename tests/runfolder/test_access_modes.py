"""Other users read no samples, tasks or logs of a run: what it writes is for its user and group, by
the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcast.local.process import Command, Service, ServiceSpec
from rollcast.runfolder import files
from rollcast.runfolder.event_log import note
from rollcast.runfolder.folder import lock_folder, mark_format
from rollcast.runfolder.writing import append_line, make_folder
from testkit.system.harness import wait_for


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077], indirect=True)
def test_a_run_is_for_its_user_and_group(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "runs" / "sums"
    with lock_folder(folder):
        mark_format(folder)
        for name in (files.SAMPLES, files.TASKS, files.EVALUATIONS, files.STEPS):
            append_line(folder / name, {"prompt": "3 + 4"})
        note(folder, "generator-1 joined")
        log = folder / files.LOGS / "generator-1.log"
        service = Service(ServiceSpec("generator-1", (Command(("true",), log),), 0, 1.0))
        service.start()
        wait_for(lambda: service.poll() == 0, 60, "the process ends")
        make_folder(folder / files.LOGGED)
    modes = {
        str(path.relative_to(folder)): oct(_mode(path)) for path in [folder, *folder.rglob("*")]
    }
    folders = {".", files.LOGS, files.LOGGED}
    expected = {
        name: oct((0o770 if name in folders else 0o660) & ~umask)
        for name in modes
        if name != files.LOCK
    }
    assert {name: mode for name, mode in modes.items() if name != files.LOCK} == expected
    assert {files.SAMPLES, files.EVENTS, f"{files.LOGS}/generator-1.log"} <= modes.keys()
    assert _mode(folder.parent) == 0o777 & ~umask, "the folder of all runs is the user's matter"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
