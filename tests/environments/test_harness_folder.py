"""The folder of a harness goes with its processes, however its generator ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", GENERATOR], stdout=subprocess.PIPE, env=environment) as generator:
        assert generator.stdout is not None
        assert generator.stdout.readline(), "the harness runs"
        (folder,) = tmp_path.glob("rollcast-harness-*")
        assert (folder / "notes").exists()
        generator.send_signal(number)
    wait_for(lambda: not folder.exists(), 60, "the folder is removed")
