"""A whole run as processes, without the supervisor: Redis, one trainer, generators; each can be
killed or frozen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import redis
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rollcast.connections.port_files import port_file, read_port
from rollcast.local.embedded_redis import find_server
from rollcast.local.ports import free_port
from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import read_lines

_pages = httpx.Client(timeout=5.0, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: a client of its own for each look at a page spends 30 ms on unneeded TLS."""


def wait_for(
    condition: Callable[[], Any], seconds: float, event_name: str, every: float = 0.1
) -> Any:
    """The first true value of `condition`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(every)
    raise AssertionError(f"{event_name} did not happen within {seconds:.0f} s")


class System:
    """`with System(folder, settings) as system`: everything it started is ended at exit, by process
    id.
    """

    def __init__(
        self, folder: Path, settings: dict[str, Any], programs: ForkedPrograms | None = None
    ) -> None:
        """programs: what the services are forked of; None = they are started as programs."""
        self.folder = folder
        self._programs = programs
        self.redis_port = free_port("127.0.0.1")
        self.settings = settings | {
            "folder": str(folder),
            "redis": {"port": self.redis_port} | settings.get("redis", {}),
            "rpc": {"port": free_port("127.0.0.1")},
        }
        self.run_folder = folder / settings["run"]
        self.config = folder / "run.yaml"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped_services: set[str] = set()
        """Ended by the test on purpose."""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(yaml.safe_dump(self.settings))
        self.start_redis()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Redis last: the others sign off from it, and would wait if it were gone."""
        _end([process for name, process in self.processes.items() if name != "redis"])
        _end([process for name, process in self.processes.items() if name == "redis"])

    def _start(self, name: str, command: list[str]) -> None:
        self.stopped_services.discard(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
            )

    def start_redis(self) -> None:
        data = self.folder / "redis"
        data.mkdir(exist_ok=True)
        command = [str(find_server()), "--port", str(self.redis_port), "--dir", str(data)]
        self._start(
            "redis",
            [*command, "--appendonly", "yes", "--appendfsync", "everysec", "--bind", "127.0.0.1"],
        )
        wait_for(self._redis_answers, 20, "Redis")

    def _redis_answers(self) -> bool:
        try:
            with redis.Redis(port=self.redis_port) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def start_trainer(self, *, resume: bool = False, ranks: int = 1) -> None:
        """Several ranks under torchrun."""
        arguments = ["--config", str(self.config), *(["--resume"] if resume else [])]
        if ranks == 1:
            self.start_service("trainer", "trainer", arguments)
        else:
            launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
            self._start(
                "trainer", [sys.executable, "-m", *launcher, "rollcast.trainer", *arguments]
            )

    def start_generator(self, name: str) -> None:
        self.start_service(name, "generator", ["--config", str(self.config), "--name", name])

    def start_service(self, name: str, service: str, arguments: list[str]) -> None:
        """`python -m rollcast.SERVICE` under that name."""
        module = f"rollcast.{service}"
        if self._programs is None:
            self._start(name, [sys.executable, "-m", module, *arguments])
        else:
            self.stopped_services.discard(name)
            self.processes[name] = self._programs.start(
                module, arguments, self.folder / f"{name}.log"
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process and all its children (vLLM has an engine process), if it has
        not ended.
        """
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, number)

    def kill(self, name: str) -> None:
        """SIGKILL to the whole process group, as a lost pod."""
        self.stopped_services.add(name)
        self.signal(name, signal.SIGKILL)
        self.processes[name].wait(20)

    def terminate(self, name: str) -> int:
        """SIGTERM to the process itself, as Kubernetes does; returns the exit code."""
        self.stopped_services.add(name)
        self.processes[name].terminate()
        # Seconds in which a process writes its checkpoint and ends
        return self.processes[name].wait(60.0)

    def slow_down(self, name: str, share: float, seconds: float) -> None:
        """Let the process run only `share` of the time, for `seconds`: stopped and continued ten
        times a second.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            self.signal(name, signal.SIGSTOP)
            time.sleep(0.1 * (1 - share))
            self.signal(name, signal.SIGCONT)
            time.sleep(0.1 * share)

    def lines(self, file: str) -> list[dict[str, Any]]:
        return read_lines(self.run_folder / file)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.lines("steps.jsonl")

    @property
    def last_step(self) -> int:
        return int(self.steps[-1]["step"]) if self.steps else 0

    def wait_step(self, step: int, seconds: float) -> None:
        wait_for(lambda: self._all_alive() and self.last_step >= step, seconds, f"step {step}")

    def wait_end(self, seconds: float) -> int:
        """The trainer's exit code.

        Its metrics are read meanwhile, as a Prometheus would: it waits for that.
        """
        trainer = self.processes["trainer"]

        def has_ended() -> bool:
            with suppress(httpx.HTTPError, OSError, ValueError):
                self.metrics("trainer")
            return trainer.poll() is not None

        wait_for(has_ended, seconds, "the trainer's end", every=0.5)
        return trainer.wait(0)

    def _all_alive(self) -> bool:
        """Whoever was not ended by the test must be running, or have ended well."""
        for name, process in self.processes.items():
            code = process.poll()
            assert code in (None, 0) or name in self.stopped_services, (
                f"{name} ended with {code}:\n{self.log(name)[-3000:]}"
            )
        return True

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def metrics(self, service: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Samples of a service's /metrics: (name, labels without run) -> value."""
        port = read_port(port_file(self.run_folder, service))
        text = _pages.get(f"http://127.0.0.1:{port}/metrics").text
        return {
            (
                sample.name,
                tuple(sorted((k, v) for k, v in sample.labels.items() if k != "run")),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def groups(self, outcome: str) -> float:
        return self.metrics("trainer").get(("rollcast_groups_total", (("outcome", outcome),)), 0.0)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, and SIGKILL for whoever does not end by it."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    # Who has not ended by then after the test is killed: a generator whose trainer has gone waits
    # for it for longer
    deadline = time.monotonic() + 5.0
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
