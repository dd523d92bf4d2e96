"""The folder of a harness goes with its processes, however its generator ended."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rollcast.environments.harness.program import HarnessProgram
from rollcast.generator.endpoint.programs import SessionPrograms
from testkit.system.harness import wait_for

GENERATOR = """
import asyncio, sys, tempfile
from pathlib import Path
from rollcast.environments.harness.program import HarnessProgram

async def main():
    code = "import time; open('notes', 'w').close(); time.sleep(600)"
    program = await HarnessProgram.start([sys.executable, "-c", code], {})
    while not any(Path(tempfile.gettempdir()).glob("rollcast-harness-*/notes")):
        await asyncio.sleep(0.05)
    print("runs", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def has_ended(process: psutil.Process) -> bool:
    """Also if it waits for its parent, which is this process after a test that adopted orphans."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


async def test_a_program_finds_its_folder_by_each_of_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PWD", "/somewhere/else")
    code = "import os; print({os.getcwd(), os.environ['PWD'], os.environ['TMPDIR']})"
    program = await HarnessProgram.start([sys.executable, "-c", code], {})
    try:
        assert await program.wait(60)
        folders = ast.literal_eval(program.last_lines)
        assert len(folders) == 1
        assert "rollcast-harness-" in folders.pop()
    finally:
        await program.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", GENERATOR], stdout=subprocess.PIPE, env=environment
    ) as generator:
        assert generator.stdout is not None
        assert generator.stdout.readline(), "the harness runs"
        (folder,) = tmp_path.glob("rollcast-harness-*")
        assert (folder / "notes").exists()
        generator.send_signal(number)
    wait_for(lambda: not folder.exists(), 60, "the folder is removed")


def test_what_a_killed_generator_and_its_killed_keeper_left_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    unlocked = tmp_path / "rollcast-harness-new"
    unlocked.mkdir()
    with subprocess.Popen([sys.executable, "-c", GENERATOR], stdout=subprocess.PIPE) as generator:
        assert generator.stdout is not None
        assert generator.stdout.readline(), "the harness runs"
        (folder,) = (path.parent for path in tmp_path.glob("rollcast-harness-*/notes"))
        (keeper,) = psutil.Process(generator.pid).children()
        os.utime(folder, (0, 0))
        SessionPrograms()
        keeper.suspend()
        generator.kill()
    SessionPrograms()
    time.sleep(0.2)
    assert folder.exists(), "its generator or its keeper lives"
    keeper.kill()
    wait_for(lambda: has_ended(keeper), 60, "the keeper has ended")
    assert folder.exists()
    SessionPrograms()
    wait_for(lambda: not folder.exists(), 60, "the folder is removed")
    assert unlocked.exists(), "its generator is about to lock it"
