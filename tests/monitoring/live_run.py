"""A real run as processes, scraped by a real Prometheus, with a forecaster and an autoscaler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rollcast.connections.port_files import ports_folder
from rollcast.local.ports import free_port
from testkit.forecaster.prometheus_server import configured_prometheus
from testkit.forked_programs import ForkedPrograms
from testkit.monitoring.recording import NAMESPACE, SCRAPE_SECONDS, Recording
from testkit.system.harness import System, wait_for

FIXED = ("trainer", "forecaster", "autoscaler")


@contextmanager
def live_runs(
    folder: Path, runs: list[dict[str, Any]], seconds: float, programs: ForkedPrograms | None = None
) -> Iterator[Recording]:
    """Run them one after the other, each up to two thirds of its budget; yields while the last one
    is still at work.

    In each run a generator is killed half-way there and another one joins. `seconds`: a run's
    deadline. `programs`: what its services are forked of.
    """
    port = free_port("127.0.0.1")
    with ExitStack() as stack:
        targets = folder / "targets.json"
        targets.write_text("[]")
        stack.enter_context(configured_prometheus(folder, port, _scraping(targets)))
        began = time.time()
        for run_index, settings in enumerate(runs):
            system = stack.enter_context(
                System(folder / settings["run"], _with_services(settings), programs)
            )
            _two_thirds(system, targets, seconds)
            if run_index < len(runs) - 1:
                _kill(system)
        yield Recording(
            prometheus=f"http://127.0.0.1:{port}",
            forecaster=f"http://127.0.0.1:{system.settings['forecaster']['http_port']}/prometheus",
            runs=tuple(settings["run"] for settings in runs),
            began=began,
            at=time.time(),
        )
        _kill(system)  # one that has only just started would take long to leave


def _kill(system: System) -> None:
    for name in ("trainer", "generator-0", "generator-2", *FIXED[1:]):
        system.kill(name)


def _with_services(settings: dict[str, Any]) -> dict[str, Any]:
    """The forecaster reads the trainer's page; the autoscaler decides quickly and reports to an
    absent HPA.
    """
    return settings | {
        "forecaster": {
            "http_port": free_port("127.0.0.1"),
            "source": {"kind": "scrape", "every_seconds": 0.5},
        },
        "autoscaler": {
            "mode": "hpa",
            "http_port": free_port("127.0.0.1"),
            "most": 4,
            "every_seconds": 1.0,
            "window_seconds": 10.0,
            "stale_seconds": 10.0,
            "start_up_seconds": 0.0,
            "lower_after_seconds": 10.0,
            "lower_every_seconds": 5.0,
        },
    }


def _two_thirds(system: System, targets: Path, seconds: float) -> None:
    """Start everything and come back when two thirds of the steps are made."""
    system.start_trainer()
    for name in ("generator-0", "generator-1"):
        system.start_generator(name)
    for service in ("forecaster", "autoscaler"):
        system.start_service(service, service, ["--config", str(system.config)])
    last = int(system.settings["budget"]["steps"]) * 2 // 3
    deadline = time.monotonic() + seconds

    def has_reached(step: int) -> bool:
        for name, process in list(system.processes.items()):
            if (
                name.startswith("generator")
                and name not in system.stopped_services
                and process.poll() is not None
            ):
                system.start_generator(name)  # as a pod would be: a busy machine may cut one off
        _list_targets(system, targets)
        return system._all_alive() and system.last_step >= step

    def wait(step: int) -> None:
        wait_for(lambda: has_reached(step), deadline - time.monotonic(), f"step {step}", every=0.3)

    wait(last // 2)
    system.kill("generator-1")
    system.start_generator("generator-2")
    wait(last)


def _list_targets(system: System, targets: Path) -> None:
    """Every service that wrote its port."""
    service_targets = [
        {
            "targets": [f"127.0.0.1:{port.read_text().strip()}"],
            "labels": {
                "job": port.name if port.name in FIXED else "generator",
                "namespace": NAMESPACE,
            },
        }
        for port in sorted(ports_folder(system.run_folder).glob("*"))
        if (port.name in FIXED or port.name.startswith("generator")) and port.read_text()
    ]
    text = json.dumps(service_targets)
    if targets.read_text() != text:
        temporary_file = targets.with_suffix(".new")
        temporary_file.write_text(text)
        temporary_file.replace(targets)


def _scraping(targets: Path) -> str:
    return (
        f"global: {{scrape_interval: {SCRAPE_SECONDS}s, evaluation_interval: {SCRAPE_SECONDS}s}}\n"
        "scrape_configs:\n"
        "- job_name: rollcast\n"
        "  honor_labels: true\n"
        f"  file_sd_configs: [{{files: ['{targets}'], refresh_interval: 1s}}]\n"
    )
