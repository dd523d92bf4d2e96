"""What reads the environment is not imported before a service has set it.

torch reads OMP_NUM_THREADS once, when it is imported. A generator that imported it a line too early
ran two OpenMP threads, and every step of a run on two cores took 1.7 times as long.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SERVICES = {
    "generator": "rollcast.generator.__main__, rollcast.generator.service",
    "generator, trial": "rollcast.generator.trial",
    "trainer": "rollcast.trainer.__main__",
    "trainer, launch": "rollcast.trainer.launch",
    "forecaster": "rollcast.forecaster.__main__, rollcast.forecaster.service",
    "autoscaler": "rollcast.autoscaler.__main__, rollcast.autoscaler.service",
    "grader": "rollcast.grader.__main__, rollcast.grader.service",
    "loggers": "rollcast.loggers.__main__, rollcast.loggers.service",
    "command line": "rollcast.cli.main, rollcast.cli.up",
}
"""Service -> the modules that it has imported when it sets its environment."""
READ_THE_ENVIRONMENT = ("torch", "transformers", "vllm")
IMPORT = """
import json, sys
from importlib import import_module

for service, modules in json.loads(sys.argv[1]).items():
    before = set(sys.modules)
    for module in modules.split(", "):
        import_module(module)
    print(service, *sorted(set(sys.argv[2:]) & (sys.modules.keys() - before)), sep="\\t")
"""
"""One after the other in one process, since they import much that is the same."""


def test_no_service_imports_what_reads_the_environment_before_it_is_set() -> None:
    command = [sys.executable, "-c", IMPORT, json.dumps(SERVICES), *READ_THE_ENVIRONMENT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.splitlines() == list(SERVICES)


@pytest.mark.parametrize(
    "server", ["environments.python_processes.fork_server", "tasks.sandbox.fork_server"]
)
def test_a_fork_server_imports_no_settings(server: str) -> None:
    """They are half a second of its start, and an environment or a verifier has no use for them."""
    program = f"import rollcast.{server}, sys; print({{'pydantic', 'yaml'}} & sys.modules.keys())"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip() == "set()"
