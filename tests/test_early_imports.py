"""What reads the environment is not imported before a service has set it.

torch reads OMP_NUM_THREADS once, when it is imported. A generator that imported it a line too early ran two OpenMP
threads, and every step of a run on two cores took 1.7 times as long.
"""

from __future__ import annotations

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
READ_THE_ENVIRONMENT = {"torch", "transformers", "vllm"}


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_imports_what_reads_the_environment_before_it_is_set(service: str) -> None:
    program = f"import sys, {SERVICES[service]}; print(*({READ_THE_ENVIRONMENT!r} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.split() == []
