"""How the services that take only a run file begin, and how they end if they cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVICES = ("grader", "autoscaler", "forecaster")


START_EACH = """
import os, runpy, sys
import rollcast.config.run, rollcast.telemetry.service_process
for service in sys.argv[2:]:
    if (pid := os.fork()) == 0:
        sys.argv = [service, "--config", sys.argv[1]]
        runpy.run_module(f"rollcast.{service}", run_name="__main__")
    print(service, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Forks of one process: each is a start of its own, the imports are made once."""


def test_a_wrong_run_file_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    run_file = tmp_path / "run.yaml"
    run_file.write_text("run: Bad Name\nmodel: {path: m}\n")
    command = [sys.executable, "-c", START_EACH, str(run_file), *SERVICES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == [f"{service} 2" for service in SERVICES]
    sentences = ended.stderr.splitlines()
    assert len(sentences) == len(SERVICES)
    for sentence in sentences:
        assert sentence.startswith(f"error: {run_file}: run = 'Bad Name' is wrong"), ended.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_heavy_is_imported_before_the_arguments_are_right(service: str) -> None:
    heavy = ("pydantic", "numpy", "grpc", "redis", "httpx", "starlette", "kubernetes", "torch")
    program = (
        f"import sys, rollcast.{service}.__main__; print(*sorted(set({heavy!r}) & "
        "set(sys.modules)))"
    )
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert imported.stdout.split() == []


FAIL_EACH = """
import os, sys, types
from rollcast.config.errors import PassingError, UserError
from rollcast.telemetry.service_process import run_service
for error in (UserError, PassingError):
    def serve(config):
        print(config.run, flush=True)
        raise error('port = 1: is taken')
    if (pid := os.fork()) == 0:
        sys.modules['rollcast.served.service'] = types.SimpleNamespace(serve=serve)
        sys.exit(run_service('served', 'Serves.'))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_only_a_mistake_of_the_user_ends_with_2(tmp_path: Path) -> None:
    """A Job that ends with 2 is not tried again.

    In processes of their own: the logger keeps its standard error.
    """
    run_file = tmp_path / "run.yaml"
    run_file.write_text("run: r\nmodel: {path: m}\n")
    command = [sys.executable, "-c", FAIL_EACH, "--config", str(run_file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("r\n2\nr\n1\n", "error: port = 1: is taken\n" * 2)
