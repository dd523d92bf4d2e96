"""A real Prometheus that scrapes metrics pages of this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from rollcast.telemetry import evaluation_metrics
from testkit.forecaster.service_process import wait_for

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
NEEDS_PROMETHEUS = pytest.mark.skipif(
    PROMETHEUS is None, reason="needs the prometheus server (Debian package prometheus)"
)


def first_scrapes(port: int, run: str) -> dict[int, float]:
    """Step of each evaluation of `run` -> Unix seconds of its first sample in the last hour."""
    query = f'{evaluation_metrics.EVAL_PASS_RATE.name}{{run="{run}"}}[1h]'
    answer = httpx.get(
        f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}, timeout=10.0
    ).json()
    return {
        int(series["metric"]["step"]): float(series["values"][0][0])
        for series in answer["data"]["result"]
    }


@contextmanager
def prometheus(
    folder: Path, port: int, targets: list[int], interval_seconds: int = 1
) -> Iterator[None]:
    """A server that scrapes `targets`; killed at the end, its data kept."""
    addresses = ", ".join(f"'127.0.0.1:{target}'" for target in targets)
    configuration = (
        f"global: {{scrape_interval: {interval_seconds}s}}\n"
        f"scrape_configs: [{{job_name: trainer, static_configs: [{{targets: [{addresses}]}}]}}]\n"
    )
    with configured_prometheus(folder, port, configuration):
        yield


@contextmanager
def configured_prometheus(folder: Path, port: int, configuration: str) -> Iterator[None]:
    """A server with that prometheus.yml; killed at the end, its data kept."""
    (folder / "prometheus.yml").write_text(configuration)
    assert PROMETHEUS is not None
    data = f"--storage.tsdb.path={folder / 'data'}"
    address = f"--web.listen-address=127.0.0.1:{port}"
    file = f"--config.file={folder / 'prometheus.yml'}"
    process = subprocess.Popen([PROMETHEUS, file, data, address, "--log.level=error"])

    def is_ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_for(is_ready)
        yield
    finally:
        process.kill()
        process.wait(10.0)
