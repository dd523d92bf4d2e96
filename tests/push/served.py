"""A forecaster that takes what is pushed, and the client of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.push import Pusher
from testkit.forecaster.recorded_run import run_file
from testkit.forecaster.service_process import Service

TOKEN = "a secret of trainers"


def served(folder: Path) -> Path:
    source = {"kind": "scrape", "every_seconds": 0.2}
    return run_file(folder, {}, forecaster={"source": source, "http_port": 0, "push_token": TOKEN})


def pusher_of(service: Service, run: str = "theirs", **more: Any) -> Pusher:
    return Pusher(f"http://127.0.0.1:{service.port}", run, token=TOKEN, **more)
