"""A hundred live runs that one forecaster reads from one Prometheus, each with an evaluation at
every scrape.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from benchmarks.forecaster.__main__ import processor_seconds
from rollcast.config.curve_sources import PrometheusSource
from rollcast.local.ports import free_port
from testkit.forecaster.prometheus_server import first_scrapes, prometheus
from testkit.forecaster.recorded_run import KEPT, Reading, TrainerPage, record, run_file
from testkit.forecaster.service_process import Service, running, wait_for

NUM_RUNS = 100
SCRAPE_SECONDS = 15
NUM_INTERVALS = 4
FIRST = 40
"""Evaluations that each run had before; the service sees the last 16 of them."""


def crowd(folder: Path) -> dict[str, Any]:
    """With the source's settings as they are without a word in the run file.

    Counted is the forecaster's process.
    """
    curves = {
        f"run-{place:03}": record(
            FIRST + 1 + NUM_INTERVALS, asymptote=0.5 + 0.004 * place, seed=place
        )
        for place in range(NUM_RUNS)
    }
    port = free_port("127.0.0.1")
    source = PrometheusSource(url=f"http://127.0.0.1:{port}")
    with ExitStack() as stack:
        pages = {run: stack.enter_context(TrainerPage(run)) for run in curves}
        for run, page in pages.items():
            for reading in curves[run][:FIRST]:
                page.show(reading)
        stack.enter_context(
            prometheus(folder, port, [page.port for page in pages.values()], SCRAPE_SECONDS)
        )
        service = stack.enter_context(
            running(run_file(folder, {"kind": "prometheus", "url": source.url}), folder)
        )
        wait_for(lambda: num_known(service, KEPT) == NUM_RUNS, seconds=120)
        process = psutil.Process(service.process.pid)
        used = []
        for place in range(FIRST, FIRST + 1 + NUM_INTERVALS):
            for run, page in pages.items():
                page.show(curves[run][place])
            time.sleep(SCRAPE_SECONDS)
            used.append(processor_seconds(process))
        # Without the first interval, which lacks the refits of the scrapes before it.
        busy = used[-1] - used[0]
        wait_for(lambda: num_known(service, KEPT + 1 + NUM_INTERVALS) == NUM_RUNS, seconds=120)
        idle_from = processor_seconds(process)
        time.sleep(NUM_INTERVALS * SCRAPE_SECONDS)
        idle = processor_seconds(process) - idle_from
        lags = [
            lag
            for run, curve in curves.items()
            for lag in lags_of(service, port, run, curve[FIRST:])
        ]
        return {
            "hundred_runs": {
                "runs": NUM_RUNS,
                "scrape_seconds": SCRAPE_SECONDS,
                "read_every_seconds": source.every_seconds,
                "share_of_a_core": round(busy / (NUM_INTERVALS * SCRAPE_SECONDS), 4),
                "share_of_a_core_when_nothing_is_new": round(
                    idle / (NUM_INTERVALS * SCRAPE_SECONDS), 4
                ),
                "memory_mb": round(process.memory_info().rss / 1e6, 1),
                "scraped_to_forecast_seconds_median": round(statistics.median(lags), 2),
                "scraped_to_forecast_seconds_longest": round(max(lags), 2),
            }
        }


def num_known(service: Service, count: int) -> int:
    """Runs with at least that many points.

    Waits a second first: asking is paid by the measured process too.
    """
    time.sleep(1.0)
    return sum(run["num_points"] >= count for run in service.client.get("/api/runs").json()["runs"])


def lags_of(service: Service, port: int, run: str, readings: list[Reading]) -> list[float]:
    """Seconds from the begin of the scrape that found an evaluation to the forecast with it."""
    made = {
        said["compute"]: said["made_at"]
        for said in service.client.get(f"/api/runs/{run}/history").json()["forecasts"]
    }
    scraped = first_scrapes(port, run)
    return [made[reading.compute] - scraped[reading.step] for reading in readings]
