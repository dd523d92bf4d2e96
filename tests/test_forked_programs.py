"""What forks the programs of whole systems outlives any number of them that end at once, and leaves
none behind.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from testkit.forked_programs import ForkedPrograms
from testkit.system.harness import wait_for

PROGRAMS = 24


def test_many_that_end_at_once_all_have_an_exit_code_and_the_rest_ends_with_what_forked_it(
    tmp_path: Path,
) -> None:
    with ForkedPrograms(tmp_path, ()) as programs:
        servers = [programs.start("http.server", ["0"], tmp_path / "log") for _ in range(PROGRAMS)]
        helpers = [
            programs.start("http.server", ["--help"], tmp_path / "help") for _ in range(PROGRAMS)
        ]
        for server in servers:
            server.send_signal(signal.SIGKILL)
        assert [server.wait(60) for server in servers] == [-signal.SIGKILL] * PROGRAMS
        assert [helper.wait(60) for helper in helpers] == [0] * PROGRAMS
        servers[0].returncode, servers[0]._code = None, tmp_path / "not told yet"
        servers[0].send_signal(signal.SIGTERM)  # it has ended, and nobody knows

        last = programs.start("http.server", ["0"], tmp_path / "log")
        with pytest.raises(subprocess.TimeoutExpired, match=r"after 0\.1 seconds"):
            last.wait(0.1)
        left = psutil.Process(last.pid)
    wait_for(
        lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE,
        30,
        "the end of the last one",
    )
