"""Collection is for names alone: a test module that starts a program or imports vLLM on import is
an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.record import ROOT

CONFTEST = """
from tests.conftest import StartedPrograms
def pytest_configure(config):
    config.pluginmanager.register(StartedPrograms())
"""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            "import subprocess; subprocess.run(['true'], check=True, timeout=60)",
            "test_some.py starts (['true'],)",
        ),
        ("import vllm", "test_some.py imports vllm"),
        ("import json", None),
    ],
)
def test_a_module_that_does_it_is_named(tmp_path: Path, line: str, fault: str | None) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "vllm.py").touch()  # its name is enough
    (tmp_path / "test_some.py").write_text(f"{line}\ndef test_one(): ...\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "services")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if fault is None:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert done.returncode == pytest.ExitCode.INTERRUPTED
        assert fault in done.stdout
