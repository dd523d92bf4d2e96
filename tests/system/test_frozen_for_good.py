"""`rollcast up` while one process after another is stopped by SIGSTOP and never continued: all
others go on, or end and are started again, within the times of docs/reliability.md.

Frozen graders, adapters, environments and fork servers: tests/grader and tests/environments.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from testkit.forked_programs import ForkedPrograms
from testkit.system.command import goes_on, last_step, read_output, rollcast, services
from testkit.system.harness import wait_for
from tests.system.ten_lines import minimal_settings

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(1_800)]

COLLECTIVE_SECONDS = 30.0
HEARTBEAT_SECONDS = 6.0
APPLY_SECONDS = 15.0
START_SECONDS = 300.0
"""An engine or two ranks start, and a step is made, on a busy machine."""


class Up:
    """The command, its run folder and its services."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._run_folder = folder / "runs" / "minimal"

    def find(self, name: str) -> psutil.Process | None:
        """A service's newest process; None while it starts again."""
        # Orphans of a service that ended are the command's children for a moment.
        with suppress(AssertionError, IndexError, psutil.Error):
            return services(self.process, self._folder).get(name)
        return None

    def freeze(self, name: str) -> psutil.Process:
        process: psutil.Process = wait_for(lambda: self.find(name), START_SECONDS, name)
        process.suspend()
        return process

    def wait_steps(self, seconds: float) -> None:
        """Wait for three further steps: more than the groups that are ready may make."""
        step = last_step(self._run_folder)
        wait_for(
            lambda: goes_on(self.process, self._folder) and last_step(self._run_folder) >= step + 3,
            seconds,
            f"three steps after step {step}:\n{read_output(self._folder)[-3000:]}",
        )

    def wait_replaced(self, name: str, frozen: psutil.Process, seconds: float) -> None:
        def is_replaced() -> bool:
            assert goes_on(self.process, self._folder)
            process = self.find(name)
            return process is not None and process.pid != frozen.pid

        wait_for(is_replaced, seconds, f"another {name}:\n{read_output(self._folder)[-3000:]}")

    def log(self, name: str) -> str:
        return (self._run_folder / "logs" / f"{name}.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def up(
    tmp_path_factory: pytest.TempPathFactory, model_folder: Path, programs: ForkedPrograms
) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("frozen")
    settings = minimal_settings(folder, model_folder) | {"run": "minimal"}
    settings["budget"]["steps"] = 100_000
    settings["trainer"] = {
        "collective_timeout_seconds": COLLECTIVE_SECONDS,
        "checkpoint_every_steps": 2,
    }
    settings["weights"] = {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "bucket_timeout_seconds": 3,
        "acknowledge_timeout_seconds": APPLY_SECONDS,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    with rollcast(folder, "up", "--config", "run.yaml", programs=programs) as process:
        command = Up(process, folder)
        command.wait_steps(2 * START_SECONDS)
        yield command


def test_forecaster(up: Up) -> None:
    up.freeze("forecaster")
    up.wait_steps(START_SECONDS)


def test_front_end_of_a_generator(up: Up) -> None:
    """It is fenced; the other one goes on alone."""
    up.freeze("generator-1")
    up.wait_steps(START_SECONDS)


def test_engine_of_the_generator_that_is_left(up: Up) -> None:
    generator = wait_for(lambda: up.find("generator-0"), START_SECONDS, "generator-0")
    children = generator.children(recursive=True)
    max(children, key=lambda child: child.memory_info().rss).suspend()
    up.wait_replaced("generator-0", generator, 12 * APPLY_SECONDS)
    up.wait_steps(START_SECONDS)


@pytest.mark.parametrize("rank", [1, 0])
def test_rank(up: Up, rank: int) -> None:
    frozen = up.freeze(f"trainer {rank}")
    up.wait_replaced(f"trainer {rank}", frozen, 4 * COLLECTIVE_SECONDS)
    up.wait_steps(START_SECONDS)


def test_redis_until_the_end(up: Up) -> None:
    """All wait for it; Ctrl-C still ends the run with a checkpoint, and leaves no process."""
    up.freeze("redis")
    wait_for(lambda: "redis is away" in up.log("trainer"), 120, "the trainer's warning")
    family = psutil.Process(up.process.pid).children(recursive=True)
    assert all(up.find(name) for name in ("trainer 0", "trainer 1", "generator-0"))
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(300) == 130
    wait_for(
        lambda: not [process for process in family if process.is_running()], 60, "the end of all"
    )
