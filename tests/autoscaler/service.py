"""The autoscaler's process: started as a program or forked, and what it serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from rollcast.connections.port_files import port_file, read_port
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import parse_page
from testkit.forked_programs import ForkedPrograms
from tests.autoscaler.keda import eventually
from tests.autoscaler.pages import RUN

TRAINER = "app.kubernetes.io/instance=demo,app.kubernetes.io/component=trainer"
SERVICES = Path(__file__).parents[2] / "services"
PAGES = httpx.Client(timeout=10.0, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: a client of its own for each look at a page spends 20 ms on TLS that nobody asks
for."""
QUICK = {
    "http_port": 0,
    "grpc_port": 0,
    "every_seconds": 0.1,
    "window_seconds": 1.0,
    "start_up_seconds": 0.1,
    "lower_after_seconds": 1.5,
    "lower_every_seconds": 0.5,
    "stale_seconds": 1.0,
    "hpa_tolerance": 0.0,
    "most": 8,
}


class Service:
    """The process, and what it serves."""

    def __init__(
        self,
        folder: Path,
        services: ForkedPrograms | None,
        settings: dict[str, Any],
        environment: dict[str, str],
    ) -> None:
        self.folder = folder / RUN
        config = folder / "run.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "run": RUN,
                    "folder": str(folder),
                    "model": {"path": "m", "max_length": 4096},
                    "recipe": {
                        "prompts_per_step": 8,
                        "rollouts_per_prompt": 8,
                        "max_prompt_tokens": 64,
                        "max_completion_tokens": 1024,
                        "length_control": {"kind": "none"},
                    },
                    "tasks": {"evaluation": {"rollouts_per_prompt": 8}},
                    "generator": {"slots": 32},
                    "autoscaler": QUICK | settings,
                }
            )
        )
        self.log = folder / "autoscaler.log"
        arguments = ["--config", str(config)]
        if services is not None:
            self.process: subprocess.Popen[bytes] = services.start(
                "rollcast.autoscaler", arguments, self.log, environment
            )
            return
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rollcast.autoscaler", *arguments],
                env={**os.environ, "PYTHONPATH": str(SERVICES), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def port(self, name: str = "autoscaler") -> int:
        file = port_file(self.folder, name)
        eventually(lambda: file.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return read_port(file)

    def get(self, path: str) -> httpx.Response:
        return PAGES.get(f"http://127.0.0.1:{self.port()}{path}")

    def metric(self, metric: Metric) -> float | None:
        values = [
            sample.value
            for sample in parse_page(self.get("/metrics").text)
            if sample.name == metric.name
        ]
        return values[0] if values else None

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def running(
    folder: Path, services: ForkedPrograms | None, settings: dict[str, Any], **environment: str
) -> Iterator[Service]:
    """services: what it is forked of; None = it is started as a program."""
    service = Service(folder, services, settings, environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait(10)


def about(number: int) -> Callable[[float | None], bool]:
    """The pages are read on a busy machine: one more may be asked for."""
    return lambda value: value is not None and number <= value <= number + 1
