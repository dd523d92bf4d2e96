"""The forecaster's process next to the page of a trainer that has shown twelve evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import Service, running

SHOWN = 12


@contextmanager
def serving_a_record(folder: Path, **settings: object) -> Iterator[Service]:
    """`settings`: further sections of the run file. Ready once all twelve are in the forecast."""
    with TrainerPage() as page:
        source = {"kind": "scrape", "every_seconds": 0.2, "urls": [f"http://127.0.0.1:{page.port}/metrics"]}
        for reading in record()[:SHOWN]:
            page.show(reading)
        with running(run_file(folder, source, **settings), folder) as service:
            service.wait_points(SHOWN)
            yield service
