"""Requests made from the service's OpenAPI document, as documented and deliberately not; the
answers are compared with the document."""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import just
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def fuzz(port: int, requests: int, seconds: float, run: str) -> Counter[str]:
    """Send about `requests` requests, equally many to each operation and the same ones each time,
    none after `seconds`.

    What is made as documented asks about `run`: else hardly a request would get beyond 404. Returns
    the answers by class of status ("2xx"). An answer that fails a check is raised as schemathesis
    reports it.
    """
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
    operations: list[Any] = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result.err()
        operations.append(result.ok())
    examples = math.ceil(requests / (len(operations) * len(MODES)))
    deadline, status_counts = time.monotonic() + seconds, Counter[str]()
    repeatable = settings(
        max_examples=examples,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def send(case: Any, mode: GenerationMode) -> None:
        if time.monotonic() > deadline:
            return
        if mode is GenerationMode.POSITIVE and "run" in case.path_parameters:
            case.path_parameters["run"] = run
        response = case.call()
        status_counts[f"{response.status_code // 100}xx"] += 1
        case.validate_response(response, checks=CHECKS)

    for operation in operations:
        for mode in MODES:
            cases = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # nothing about it could be wrong: it takes no parameters
                repeatable(given(case=cases, mode=just(mode))(send))()
    return status_counts
