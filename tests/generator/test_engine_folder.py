"""Whatever vLLM makes of an engine's end, none of its processes and files stay."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_folder import EngineFolder
from tests.generator.engine_leftovers import left_behind

END_SECONDS = 5.0
"""Within which all must have ended."""


def test_an_engine_whose_processes_end_while_vllm_kills_them_is_ended_to_the_last(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM gives up where one is gone before it is asked for its name."""

    class Killed:
        def shutdown(self, timeout: float) -> None:
            raise psutil.NoSuchProcess(pid=2)

    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = EngineFolder()
    assert left_behind(temporary) == [folder.path.name]
    with folder.environment():
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Engine(Killed(), 5.0, folder).shutdown()
    assert left.wait(END_SECONDS) == -signal.SIGKILL
    assert left_behind(temporary) == []
