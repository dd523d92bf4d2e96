"""The forecaster's process next to the page of a trainer that has shown twelve evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import Service, running
from testkit.forked_programs import ForkedPrograms

SHOWN = 12


@contextmanager
def serving_a_record(
    folder: Path, services: ForkedPrograms | None = None, **settings: object
) -> Iterator[Service]:
    """`settings`: further sections of the run file. Ready once all twelve are in the forecast.

    services: the process it is forked from; None = it is started as a program.
    """
    with TrainerPage() as page:
        source = {
            "kind": "scrape",
            "every_seconds": 0.2,
            "urls": [f"http://127.0.0.1:{page.port}/metrics"],
        }
        for reading in record()[:SHOWN]:
            page.show(reading)
        with running(run_file(folder, source, **settings), folder, services) as service:
            service.wait_points(SHOWN)
            yield service
