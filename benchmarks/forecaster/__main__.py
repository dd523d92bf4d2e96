"""`python -m benchmarks.forecaster`: 100 live runs on one service, and 10,000 malformed requests against it.

The runs get a new evaluation every interval, all at once, which is the worst case. Processor time and memory are those
of the service's process as the system counts them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.record import write_result
from rollcast.config.services import Http
from rollcast.connections.http import HttpServer, listen, service_routes
from tests.forecaster.malformed import malformed_requests, send
from tests.forecaster.recorded_run import KEPT, Reading, record, run_file
from tests.forecaster.service_process import Service, running, wait_for

INTERVAL_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.forecaster")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--intervals", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), arguments.runs, arguments.intervals, arguments.requests)
    for key, value in figures.items():
        print(f"{key:32} {value}")
    print(write_result("forecaster", figures))


def measure(folder: Path, num_runs: int, num_intervals: int, num_requests: int) -> dict[str, Any]:
    """Figures by name; units are in the names."""
    curves = {f"run-{number:03}": record(60, asymptote=0.5 + 0.004 * number, seed=number) for number in range(num_runs)}
    shown = {"count": 40}
    page = HttpServer(
        service_routes(lambda: render(curves, shown["count"]), lambda: (True, "ok")),
        listen("127.0.0.1", 0, setting="port"),
        Http(),
    )
    page.start()
    url = f"http://127.0.0.1:{page.port}/metrics"
    source = {"kind": "scrape", "every_seconds": INTERVAL_SECONDS, "urls": [url]}
    with running(run_file(folder, source), folder) as service:
        wait_for(lambda: known_points(service, num_runs, KEPT), seconds=120)
        process = psutil.Process(service.process.pid)
        processor, lags = processor_seconds(process), []
        for number in range(1, num_intervals + 1):
            shown["count"] = 40 + number
            since = time.monotonic()
            wait_for(lambda: known_points(service, num_runs, KEPT + number), seconds=60)  # noqa: B023
            lags.append(time.monotonic() - since)
        used = processor_seconds(process) - processor
        statuses: dict[str, int] = {}
        for request in malformed_requests(num_requests, seed=1):
            status, _ = send(service.port, request)
            key = "closed" if status == 0 else f"{status // 100}xx"
            statuses[key] = statuses.get(key, 0) + 1
        figures = {
            "runs": num_runs,
            "share_of_a_core": round(used / (num_intervals * INTERVAL_SECONDS), 4),
            "processor_ms_per_refit": round(1000 * used / (num_intervals * num_runs), 2),
            "longest_lag_seconds": round(max(lags), 2),
            "memory_mib": round(process.memory_info().rss / 2**20, 1),
            "malformed_requests": num_requests,
            "answers": statuses,
            "state_kept": known_points(service, num_runs, KEPT + num_intervals),
        }
    page.stop()
    return figures


def known_points(service: Service, num_runs: int, count: int) -> bool:
    """Polled sparsely: asking is paid by the measured process too."""
    time.sleep(1.0)
    answer = service.forecast(f"run-{num_runs - 1:03}")
    return answer is not None and int(str(answer["num_points"])) >= count


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def render(curves: dict[str, list[Reading]], count: int) -> bytes:
    """The last 16 of the first `count` evaluations of every run."""
    fields = ("pass_rate", "standard_error", "compute_device_hours", "trained_tokens")
    lines = []
    for field in fields:
        lines.append(f"# TYPE rollcast_eval_{field} gauge")
        for run, readings in curves.items():
            for r in readings[max(0, count - KEPT) : count]:
                value = r.compute if field == "compute_device_hours" else getattr(r, field)
                labels = f'run="{run}",dataset="d",incarnation="{r.incarnation}",step="{r.step}"'
                lines.append(f"rollcast_eval_{field}{{{labels}}} {value!r}")
    return "\n".join([*lines, ""]).encode()


if __name__ == "__main__":
    main()
