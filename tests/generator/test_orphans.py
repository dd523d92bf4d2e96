"""Whenever its front end dies, nothing of an engine stays: processes, temporary files, shared
memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rollcast.local.ports import free_port
from testkit.generator.caches import COMPILED
from testkit.tiny_model import make_tiny_model
from tests.generator.engine_leftovers import left_behind

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MARK = "ROLLCAST_TEST_RUN"
"""In the environment of everything that a test starts, and of all that comes of it."""
END_SECONDS = 5.0
"""Within which all must have ended."""
SHARED_MEMORY = Path("/dev/shm")
ROOT = Path(__file__).parents[2]
GENERATOR = ("rollcast.generator", "--config", "run.json", "--name", "x")
HOLDER = ("tests.generator.folder_holder", "its-engine")
SETTINGS: dict[str, Any] = {
    "run": "orphans",
    "model": {"path": "model", "dtype": "float32", "max_length": 512},
    "recipe": {
        "length_control": {"kind": "none"},
        "max_prompt_tokens": 128,
        "max_completion_tokens": 384,
        "rollouts_per_prompt": 4,
    },
    "tasks": {"evaluation": {"rollouts_per_prompt": 4}},
    "budget": {"steps": 1000},
    "generator": {"slots": 16, "block_size": 32},
    "redis": {"port": 0},
    "rpc": {"port": 0},
    "forecaster": {"http_port": 0},
}


class Started:
    """A generator, a whole `rollcast up`, or what stands for a generator."""

    def __init__(self, folder: Path, temporary: Path, *command: str) -> None:
        self.name = uuid.uuid4().hex
        self.log = folder / f"{self.name}.log"
        self._output = folder / f"{self.name}.out"
        environment = os.environ | {
            MARK: self.name,
            # the titles that vLLM gives its processes overwrite what `family` reads
            "SPT_NOENV": "1",
            "TMPDIR": str(temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(COMPILED),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(
                [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
            ),
        }
        with self.log.open("wb") as log, self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=output,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    def said(self) -> list[str]:
        """Lines of its standard output."""
        return self._output.read_text().splitlines()

    def family(self) -> list[psutil.Process]:
        """Every process that came of it and lives."""
        return [process for process in psutil.process_iter() if self._is_one(process)]

    def engines(self) -> list[psutil.Process]:
        """What vLLM has started to be its engine, from the first moment on."""
        return [process for process in self.family() if _is_engine(process)]

    def wait_for(self, condition: Callable[[], Any], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def shared_memory(self) -> set[Path]:
        """Files of /dev/shm that any of its processes has mapped; what others do there is not its
        own.

        By their inodes: a semaphore is mapped under a name that it had for a moment only.
        """
        inodes = {inode for process in self.family() for inode in _mapped_inodes(process)}
        return {Path(entry) for entry in os.scandir(SHARED_MEMORY) if entry.inode() in inodes}

    def kill(self) -> list[str]:
        """SIGKILL; returns the command lines of what is left END_SECONDS later, and its files in
        shared memory.
        """
        files = self.shared_memory()
        self.process.kill()
        self.process.wait(10)
        deadline = time.monotonic() + END_SECONDS
        while (left := self.family()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [" ".join(_words(process)) for process in left] + [
            str(path) for path in sorted(files) if path.exists()
        ]

    def kill_with_wardens(self) -> list[str]:
        """As a kernel short of memory may."""
        self.process.send_signal(signal.SIGSTOP)  # else it might notice
        for process in self.family():
            if "engine_warden.py" in " ".join(_words(process)):
                process.kill()
        return self.kill()

    def end(self) -> None:
        for process in self.family():
            process.kill()
        self.process.wait(10)

    def _is_one(self, process: psutil.Process) -> bool:
        try:
            return (
                process.environ().get(MARK) == self.name
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False


def _is_engine(process: psutil.Process) -> bool:
    """A fork of a generator shows the generator's words until vLLM gives it a title."""
    try:
        is_forked = _words(process) == _words(
            process.parent() or process
        ) and "rollcast.generator" in _words(process)
        return "VLLM::EngineCore" in " ".join(_words(process)) or is_forked
    except psutil.Error:
        return False


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _mapped_inodes(process: psutil.Process) -> list[int]:
    try:
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[4]) for line in lines if f" {SHARED_MEMORY}/" in line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tiny_model(tmp_path / "model")
    (tmp_path / "run.json").write_text(json.dumps(SETTINGS | {"folder": str(tmp_path / "runs")}))
    return tmp_path


@pytest.fixture
def start(folder: Path, temporary: Path) -> Iterator[Callable[..., Started]]:
    """start(module, *arguments)"""
    all_started: list[Started] = []

    def start_one(*command: str) -> Started:
        all_started.append(Started(folder, temporary, *command))
        return all_started[-1]

    yield start_one
    for started in all_started:
        started.end()


@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_a_generator_killed_before_it_has_an_engine(
    start: Callable[..., Started], temporary: Path, seconds: float
) -> None:
    started = start(*GENERATOR)
    time.sleep(seconds)
    assert started.kill() == []
    assert left_behind(temporary) == []


@pytest.mark.parametrize("seconds", [0.0, 6.0])
def test_a_generator_killed_while_its_engine_starts(
    start: Callable[..., Started], temporary: Path, seconds: float
) -> None:
    """As soon as the engine has a process, and while the model is made."""
    started = start(*GENERATOR)
    started.wait_for(started.engines, 120)
    time.sleep(seconds)
    assert started.kill() == []
    assert left_behind(temporary) == []


def test_a_generator_that_is_told_to_stop_while_its_engine_starts_leaves_at_once(
    start: Callable[..., Started], folder: Path, temporary: Path
) -> None:
    """It is alive all the time, and not started: a probe of the start that passes before makes
    startupSeconds idle.
    """
    port = free_port("127.0.0.1")
    settings = SETTINGS | {
        "folder": str(folder / "runs"),
        "generator": SETTINGS["generator"] | {"http_port": port},
    }
    (folder / "run.json").write_text(json.dumps(settings))
    started = start(*GENERATOR)
    started.wait_for(started.engines, 120)
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10).status_code == 200
    for path in ("startz", "readyz"):
        answer = httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=10)
        assert (answer.status_code, answer.text) == (503, "engine is starting\n")
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(10) == 0, started.log.read_text()[-3000:]
    deadline = time.monotonic() + END_SECONDS
    while (left := started.family()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert left_behind(temporary) == []


@pytest.mark.timeout(600)
def test_a_generator_killed_with_its_warden_while_its_engine_is_at_work(
    start: Callable[..., Started], folder: Path, temporary: Path
) -> None:
    started = start(*GENERATOR)
    started.wait_for(lambda: list((folder / "runs").glob("*/ports/x")), 500)
    assert any("VLLM::EngineCore" in _words(process) for process in started.family())
    assert started.kill_with_wardens() == []
    assert left_behind(temporary) == []


def test_up_killed_while_an_engine_starts(start: Callable[..., Started], temporary: Path) -> None:
    started = start("rollcast.cli.main", "up", "--config", "run.json")
    started.wait_for(started.engines, 200)
    time.sleep(1.0)
    assert started.kill() == []
    assert left_behind(temporary) == []


def has_spoken(holder: Started) -> bool:
    return len(holder.said()) == 1


def test_a_new_start_clears_what_its_predecessor_left_and_nothing_of_the_living(
    start: Callable[..., Started], temporary: Path
) -> None:
    """The generator and its warden are killed at once, as by a kernel short of memory: nobody else
    clears then.
    """
    dead, living = start(*HOLDER), start(*HOLDER)
    for holder in (dead, living):
        holder.wait_for(partial(has_spoken, holder), 60)
    assert dead.shared_memory()
    assert [words.split()[-1] for words in dead.kill_with_wardens()] == ["its-engine"]
    assert len(left_behind(temporary)) == 2

    new = start(*HOLDER)
    new.wait_for(lambda: len(new.said()) == 1, 60)
    assert dead.family() == []
    assert "folders=1 processes=1" in new.log.read_text()
    assert left_behind(temporary) == sorted(living.said() + new.said())
    assert len(living.family()) == len(new.family()) == 4, (
        "generator, warden, engine, and the keeper of shared memory"
    )
