"""The forecaster as the process that users start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from rollcast.connections.port_files import port_file, read_port
from testkit.forked_programs import ForkedPrograms

SERVICES = Path(__file__).parents[2] / "services"
Value = TypeVar("Value")


class Service:
    def __init__(self, config: Path, folder: Path, services: ForkedPrograms | None = None) -> None:
        """services: the process it is forked from; None = it is started as a program."""
        pages = port_file(folder / "demo", "forecaster")
        pages.unlink(missing_ok=True)
        arguments, log = ["--config", str(config)], folder / "forecaster.log"
        if services is not None:
            self.process: subprocess.Popen[bytes] = services.start(
                "rollcast.forecaster", arguments, log
            )
        else:
            environment = {**os.environ, "PYTHONPATH": str(SERVICES), "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rollcast.forecaster", *arguments], env=environment
            )
        wait_for(lambda: pages.exists() or self.process.poll() is not None)
        log_text = f": {log.read_text()}" if log.exists() else ""
        assert self.process.poll() is None, f"the forecaster ended at its start{log_text}"
        self.port = read_port(pages)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20.0)

    def forecast(self, run: str = "demo") -> dict[str, Any] | None:
        answer = self.client.get(f"/api/runs/{run}/forecast")
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.status_code == 200 else None

    def wait_points(self, count: int, run: str = "demo") -> dict[str, Any]:
        def enough() -> dict[str, Any] | None:
            forecast = self.forecast(run)
            return forecast if forecast and int(str(forecast["num_points"])) >= count else None

        return wait_for(enough)

    def stop(self) -> int:
        self.client.close()
        self.process.terminate()
        return self.process.wait(timeout=20)


@contextmanager
def running(
    config: Path, folder: Path, services: ForkedPrograms | None = None
) -> Iterator[Service]:
    service = Service(config, folder, services)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()


def wait_for(condition: Callable[[], Value | None], seconds: float = 180.0) -> Value:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
