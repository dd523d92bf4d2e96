"""Real graders as processes of this machine, and the generator's end of the connection to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from rollcast.config.run import RunConfig, load_run_config
from rollcast.connections.port_files import port_file
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import Sample, parse_page

START_SECONDS = 120.0
ROOT = Path(__file__).parents[2]


class GraderProcess:
    """`with GraderProcess(folder, grader={...}) as grader`: serves from the first line on, is
    killed at the end.
    """

    def __init__(
        self, folder: Path, *, within: tuple[str, ...] = (), **sections: dict[str, Any]
    ) -> None:
        """within: the command that runs the grader's own, such as a container runtime's."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._run_file = folder / "run.json"
        self._log = folder / "grader.log"
        self._within = within
        grader = {"port": 0, "processes": 2} | sections.pop("grader", {})
        grading = {"sandbox": "remote"} | sections.pop("grading", {})
        settings = {
            "run": "graded",
            "folder": str(folder),
            "model": {"path": "none"},
            "grader": grader,
        }
        self._run_file.write_text(json.dumps(settings | {"tasks": {"grading": grading}} | sections))
        self.config = load_run_config(self._run_file)
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start it and wait for nothing."""
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *self._within,
                    sys.executable,
                    "-m",
                    "rollcast.grader",
                    "--config",
                    str(self._run_file),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "services"), **environment},
                start_new_session=True,
            )
        return self.process

    def __enter__(self) -> GraderProcess:
        for name in ("grader", "grader-grpc"):
            self._port_file(name).unlink(missing_ok=True)
        process = self.launch()
        until = time.monotonic() + START_SECONDS
        while not self._port_file("grader-grpc").exists():
            assert process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def port(self) -> int:
        return int(self._port_file("grader-grpc").read_text())

    def page(self, path: str) -> httpx.Response:
        return httpx.get(
            f"http://127.0.0.1:{self._port_file('grader').read_text().strip()}{path}", timeout=10
        )

    def metrics(self) -> list[Sample]:
        return parse_page(self.page("/metrics").text)

    def metric(self, metric: Metric, **labels: str) -> float:
        return sum(
            sample.value
            for sample in self.metrics()
            if sample.name == metric.name and labels.items() <= sample.labels.items()
        )

    def client(
        self, *, port: int | None = None, patience_seconds: float = 60.0, **grader: Any
    ) -> Client:
        settings = self.config.grader.model_copy(update={"port": port or self.port, **grader})
        return Client(self.config.model_copy(update={"grader": settings}), patience_seconds)

    def _port_file(self, name: str) -> Path:
        return port_file(self.config.run_folder, name)


class Client(RemoteSandbox):
    def __init__(self, config: RunConfig, patience_seconds: float) -> None:
        self.exporter = Exporter("graded")
        super().__init__(config.grader_rpc, patience_seconds, config.tasks.grading, self.exporter)

    def count(self, metric: Metric, **labels: str) -> float:
        return (
            self.exporter.registry.get_sample_value(metric.name, {"run": "graded", **labels}) or 0.0
        )


class Door:
    """One address before several graders: each new connection goes to the first of `ports` that
    takes it.
    """

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                outside, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            for port in self.ports:
                try:
                    inside = socket.create_connection(("127.0.0.1", port), timeout=5)
                except OSError:
                    continue
                inside.settimeout(None)
                threading.Thread(
                    target=_carry_both_ways, args=(outside, inside), daemon=True
                ).start()
                break
            else:
                outside.close()


def _carry_both_ways(outside: socket.socket, inside: socket.socket) -> None:
    with outside, inside:
        back = threading.Thread(target=_carry, args=(inside, outside), daemon=True)
        back.start()
        _carry(outside, inside)
        back.join(30.0)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def door(*ports: int) -> Iterator[Door]:
    made = Door(list(ports))
    try:
        yield made
    finally:
        made.close()
