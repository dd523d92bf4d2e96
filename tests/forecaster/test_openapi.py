"""A proof: the HTTP API keeps what its OpenAPI document promises, whatever it is sent."""

from __future__ import annotations

from pathlib import Path

from testkit.forecaster.recorded_service import serving_a_record
from testkit.forecaster.schema_fuzzer import fuzz
from testkit.forked_programs import ForkedPrograms

SECONDS = 25.0


def test_answers_are_as_documented_and_nothing_is_lost(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with serving_a_record(tmp_path, services, budget={"steps": 300}) as service:
        before = service.forecast()
        answers = fuzz(service.port, 500, SECONDS, run="demo")
        print(dict(answers))
        assert answers.keys() == {"2xx", "4xx"}
        assert service.forecast() == before
