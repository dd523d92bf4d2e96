"""The HTTP API keeps what its OpenAPI document promises, whatever it is sent."""

from __future__ import annotations

from pathlib import Path

from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.schema_fuzzer import fuzz
from testkit.forecaster.service_process import running

SECONDS = 25.0


def test_answers_are_as_documented_and_nothing_is_lost(tmp_path: Path) -> None:
    with TrainerPage() as page:
        source = {"kind": "scrape", "every_seconds": 0.2, "urls": [f"http://127.0.0.1:{page.port}/metrics"]}
        for reading in record()[:12]:
            page.show(reading)
        with running(run_file(tmp_path, source, budget={"steps": 300}), tmp_path) as service:
            before = service.wait_points(12)
            answers = fuzz(service.port, 500, SECONDS, run="demo")
            print(dict(answers))
            assert answers.keys() == {"2xx", "4xx"}
            assert service.forecast() == before
