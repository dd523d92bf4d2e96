"""`python -m benchmarks.forecaster`: 100 live runs on one service, and 10,000 malformed requests
against it.

All runs get a new evaluation at the same time, every interval, which is the worst case. Processor
time and memory are those of the service's process as the system counts them. Half of the requests
are bytes on a socket, half are made from the service's OpenAPI document, whose answers are compared
with it. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from rollcast.config.connections import Http
from rollcast.connections.http import HttpServer, listen, service_routes
from testkit.forecaster.malformed import malformed_requests, send
from testkit.forecaster.recorded_run import KEPT, Reading, record, run_file
from testkit.forecaster.schema_fuzzer import fuzz
from testkit.forecaster.service_process import Service, running, wait_for
from testkit.record import write_result

INTERVAL_SECONDS = 15.0
FUZZ_SECONDS = 900.0
FUZZED_RUN = "demo"
"""The run that malformed requests name, too."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.forecaster")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--intervals", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), arguments.runs, arguments.intervals, arguments.requests)
    for key, value in figures.items():
        print(f"{key:32} {value}")
    targets = judge(figures)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("forecaster", figures | {"targets": targets}))
    return 0 if all(targets.values()) else 1


def judge(figures: dict[str, Any]) -> dict[str, bool]:
    """The targets, for 100 runs that get an evaluation every 15 s."""
    return {
        "at most a tenth of a core": figures["share_of_a_core"] <= 0.10,
        "memory at most 200 MB": max(figures["memory_mb"], figures["memory_after_requests_mb"])
        <= 200,
        f"every run refitted within {INTERVAL_SECONDS:g} s of the scrape": (
            figures["longest_refit_of_all_seconds"] <= INTERVAL_SECONDS
        ),
        "no 5xx": "5xx" not in figures["answers"],
        "state kept": figures["state_kept"],
    }


def measure(folder: Path, num_runs: int, num_intervals: int, num_requests: int) -> dict[str, Any]:
    """Figures by name; units are in the names."""
    names = [FUZZED_RUN, *(f"run-{number:03}" for number in range(1, num_runs))]
    curves = {
        name: record(60, asymptote=0.5 + 0.004 * seed, seed=seed) for seed, name in enumerate(names)
    }
    shown = {"count": 40}
    scraped: dict[int, float] = {}

    def metrics() -> bytes:
        scraped.setdefault(shown["count"], time.monotonic())
        return render(curves, shown["count"])

    page = HttpServer(
        service_routes(metrics, lambda: (True, "ok")),
        listen("127.0.0.1", 0, setting="port"),
        Http(),
    )
    page.start()
    url = f"http://127.0.0.1:{page.port}/metrics"
    source = {"kind": "scrape", "every_seconds": INTERVAL_SECONDS, "urls": [url]}
    with running(run_file(folder, source), folder) as service:
        wait_for(lambda: known_points(service, names[-1], KEPT), seconds=120)
        process = psutil.Process(service.process.pid)
        processor, lags = processor_seconds(process), []
        for number in range(1, num_intervals + 1):
            shown["count"] = 40 + number
            wait_for(lambda: known_points(service, names[-1], KEPT + number), seconds=60)  # noqa: B023
            lags.append(time.monotonic() - scraped[40 + number])
        used = processor_seconds(process) - processor
        memory, before = process.memory_info().rss, state(service)
        answers = fuzz(service.port, num_requests // 2, FUZZ_SECONDS, run=FUZZED_RUN)
        by_schema = sum(answers.values())
        for request in malformed_requests(num_requests - by_schema, seed=1):
            status, _ = send(service.port, request)
            key = "closed" if status == 0 else f"{status // 100}xx"
            answers[key] += 1
        figures = {
            "runs": num_runs,
            "share_of_a_core": round(used / (num_intervals * INTERVAL_SECONDS), 4),
            "processor_ms_per_refit": round(1000 * used / (num_intervals * num_runs), 2),
            "longest_refit_of_all_seconds": round(max(lags), 2),
            "memory_mb": round(memory / 1e6, 1),
            "memory_after_requests_mb": round(process.memory_info().rss / 1e6, 1),
            "requests": num_requests,
            "requests_by_schema": by_schema,
            "answers": dict(answers),
            "state_kept": state(service) == before,
        }
    page.stop()
    return figures


def known_points(service: Service, run: str, count: int) -> bool:
    """Polled sparsely: asking is paid by the measured process too."""
    time.sleep(1.0)
    answer = service.forecast(run)
    return answer is not None and int(str(answer["num_points"])) >= count


def state(service: Service) -> Any:
    """Every forecast, and the past ones of a run."""
    runs = service.client.get("/api/runs").json()["runs"]
    return runs, service.client.get(f"/api/runs/{FUZZED_RUN}/history").json()


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
    sys.exit(main())
