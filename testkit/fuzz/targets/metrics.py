"""Metrics pages, answers of a Prometheus, and pushed evaluations."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import httpx
from pydantic import ValidationError

from rollcast.curves.sources.metrics_page import EVALUATION_LABELS, EVALUATION_NAMES, interpret
from rollcast.forecaster.push_api import PushRequest, _check_name, _evaluation
from rollcast.telemetry.prometheus_reader import Prometheus, SourceAway, parse_page
from testkit.fuzz.mutation import change_json, change_text
from testkit.fuzz.target import Target, is_json


def _labels(step: int) -> dict[str, str]:
    return dict.fromkeys(EVALUATION_LABELS, "x") | {
        "run": "demo", "dataset": "held-out", "incarnation": "1", "step": str(step),
    }  # fmt: skip


def _pages() -> list[bytes]:
    lines = []
    for name in EVALUATION_NAMES:
        lines += [f"# HELP {name} Help", f"# TYPE {name} gauge"]
        for step in (0, 10, 20):
            labels = ",".join(f'{key}="{value}"' for key, value in _labels(step).items())
            lines.append(f"{name}{{{labels}}} {0.1 + step / 100}")
    return ["\n".join([*lines, ""]).encode()]


def _is_page(content: bytes) -> bool:
    try:
        return bool(parse_page(content.decode("utf-8", "replace")))
    except SourceAway:
        return False


def _answers() -> list[bytes]:
    vector = [
        {"metric": _labels(step) | {"__name__": name}, "value": [1.7e9, str(0.1 + step / 100)]}
        for name in EVALUATION_NAMES
        for step in (0, 10)
    ]
    matrix = [{"metric": _labels(0), "values": [[1.7e9 + at, "0.5"] for at in range(4)]}]
    return [
        json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
        for kind, result in (("vector", vector), ("matrix", matrix))
    ]


@cache
def _server() -> tuple[Prometheus, dict[str, bytes]]:
    """A reader, and what its server answers."""
    answer: dict[str, bytes] = {}
    reader = Prometheus("http://prometheus")
    reader._client = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=answer["body"]))
    )
    return reader, answer


def _ask(content: bytes) -> object:
    reader, answer = _server()
    answer["body"] = content
    if b'"matrix"' in content:
        return reader.query_range("up", 0.0, 60.0, 15.0)
    return interpret(reader.query("up"), at=0.0)


def _pushes() -> list[bytes]:
    points: list[dict[str, Any]] = [
        {"step": step, "pass_rate": 0.2 + step / 100, "compute": step * 0.5, "incarnation": 1}
        for step in (1, 2, 3)
    ]
    request = {"run": "mine", "points": points, "unit": "tokens", "budget": 50.0, "worth": 0.01}
    return [json.dumps(request).encode()]


def _push(content: bytes) -> object:
    """The checks of the route, without the forecast."""
    request = PushRequest.model_validate_json(content)
    _check_name(request.run)
    points = [_evaluation(request.run, request.unit, point) for point in request.points]
    assert all(math.isfinite(point.pass_rate) for point in points)
    return points


TARGETS = (
    Target(
        "metrics-page",
        _pages,
        change_text,
        _is_page,
        lambda content: interpret(parse_page(content.decode("utf-8", "replace")), at=0.0),
        (SourceAway,),
        ("curves.sources.metrics_page", "curves.evaluations"),
    ),
    Target(
        "prometheus-answer",
        _answers,
        change_json,
        is_json,
        _ask,
        (SourceAway,),
        ("telemetry.prometheus_reader", "curves.sources.metrics_page"),
    ),
    Target(
        "push",
        _pushes,
        change_json,
        is_json,
        _push,
        # Each is answered with status 422.
        (ValidationError, ValueError),
        ("forecaster.push_api", "curves.evaluations"),
    ),
)
