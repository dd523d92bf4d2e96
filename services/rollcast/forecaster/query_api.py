"""The part of Prometheus's query API that a stock Grafana needs to draw the forecast beyond now.

Add `http://FORECASTER/prometheus` to Grafana as a second Prometheus data source. Selectors with
label matchers and the health query 1+1 are answered; anything else is refused with Prometheus's own
400.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.forecaster.board import Board
from rollcast.forecaster.selector import Selector, parse_selector
from rollcast.forecaster.timeline import readings_over_time, timeline
from rollcast.scaling.law.curve import Array
from rollcast.telemetry.forecaster_metrics import TIMELINE_DEVICE_HOURS, TIMELINE_PASS_RATE

MAX_POINTS = 11_000
MAX_RUNS = 20
MAX_UNIX_SECONDS = 1e11
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)")
_SECONDS = {
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
    "y": 31_536_000.0,
}
_HEALTH = re.compile(r"\s*1\s*\+\s*1\s*")
Form = dict[str, list[str]]
Labels = dict[str, str]


PREFIX = "/prometheus/api/v1"


def query_router(board: Board) -> APIRouter:
    router = APIRouter(prefix=PREFIX, include_in_schema=False)

    def add(path: str, answer: Callable[[Board, Form], Any]) -> None:
        async def serve(request: Request) -> Response:
            try:
                data = await run_in_threadpool(answer, board, await _form(request))
                return JSONResponse({"status": "success", "data": data})
            except ValueError as error:
                return refusal(str(error))

        router.add_api_route(path, serve, methods=["GET", "POST"])

    add("/query", _query)
    add("/query_range", _query_range)
    add("/labels", lambda board, form: sorted({name for labels in _all(board) for name in labels}))
    add("/label/{name}/values", _label_values)
    add("/series", _series)
    add(
        "/metadata",
        lambda board, form: {
            m.name: [{"type": m.kind, "help": m.help, "unit": ""}] for m in _METRICS
        },
    )
    add("/status/buildinfo", lambda board, form: {"version": "2.42.0", "application": "rollcast"})
    add("/{rest:path}", _unknown)
    return router


def refusal(sentence: str, status: int = 400, headers: Mapping[str, str] | None = None) -> Response:
    """An error as Prometheus puts it.

    Lone surrogates, which UTF-8 may not carry out, are escaped.
    """
    safe = sentence.encode("utf-8", errors="backslashreplace").decode()
    return JSONResponse(
        {"status": "error", "errorType": "bad_data", "error": safe}, status, headers
    )


_METRICS = (TIMELINE_PASS_RATE, TIMELINE_DEVICE_HOURS)


def _query(board: Board, form: Form) -> Any:
    time_seconds = _time(_one(form, "time", str(time.time())), "time")
    query = _one(form, "query")
    if _HEALTH.fullmatch(query):
        return {"resultType": "scalar", "result": [time_seconds, "2"]}
    rows = _evaluate(board, parse_selector(query), np.array([time_seconds]))
    finite_values = (
        (labels, float(values[0])) for labels, values in rows if math.isfinite(values[0])
    )
    result = [
        {"metric": labels, "value": [time_seconds, repr(value)]} for labels, value in finite_values
    ]
    return {"resultType": "vector", "result": result}


def _query_range(board: Board, form: Form) -> Any:
    start = _time(_one(form, "start"), "start")
    end = _time(_one(form, "end"), "end")
    step = _duration(_one(form, "step"))
    if end < start:
        raise ValueError("end is before start")
    if (end - start) / step > MAX_POINTS:
        raise ValueError(f"more than {MAX_POINTS} points in a series; make the step larger")
    times: Array = start + step * np.arange(math.floor((end - start) / step) + 1, dtype=np.float64)
    query = _one(form, "query")
    if _HEALTH.fullmatch(query):
        return {
            "resultType": "matrix",
            "result": [{"metric": {}, "values": [[float(at), "2"] for at in times]}],
        }
    result = []
    for labels, values in _evaluate(board, parse_selector(query), times):
        is_finite = np.isfinite(values)
        pairs = zip(times[is_finite].tolist(), values[is_finite].tolist(), strict=True)
        if np.any(is_finite):
            result.append({"metric": labels, "values": [[at, repr(value)] for at, value in pairs]})
    return {"resultType": "matrix", "result": result}


def _label_values(board: Board, form: Form) -> Any:
    name = _one(form, "name")
    return sorted({labels[name] for labels in _find_series(board, form) if name in labels})


def _series(board: Board, form: Form) -> Any:
    if not form.get("match[]"):
        raise ValueError("match[] is missing; give a selector")
    return _find_series(board, form)


def _unknown(_: Board, form: Form) -> Any:
    endpoint_path = form["rest"][0][:40]
    raise ValueError(
        f"{endpoint_path!r} is not answered here; query, query_range, series, labels and metadata "
        "are"
    )


def _find_series(board: Board, form: Form) -> list[Labels]:
    selectors = [parse_selector(text) for text in form.get("match[]", [])[:20]]
    return [
        labels
        for labels in _all(board)
        if not selectors or any(s.matches(labels) for s in selectors)
    ]


def _all(board: Board) -> list[Labels]:
    return [labels for forecast in board.all() for labels in _labels(forecast)]


def _labels(forecast: RunForecast) -> Iterator[Labels]:
    for quantile in QUANTILES:
        name = TIMELINE_PASS_RATE.name
        yield {"__name__": name, "run": forecast.name, "quantile": f"{quantile:g}"}
    yield {"__name__": TIMELINE_DEVICE_HOURS.name, "run": forecast.name}


def _evaluate(board: Board, selector: Selector, times: Array) -> list[tuple[Labels, Array]]:
    """Labels and values (m,) of every series that is selected; NaN at times without a sample."""
    chosen = [
        (item, rows)
        for item in board.all()
        if (rows := [x for x in _labels(item) if selector.matches(x)])
    ]
    if len(chosen) > MAX_RUNS:
        raise ValueError(
            f"the query selects {len(chosen)} runs; name at most {MAX_RUNS} with the label run"
        )
    result: list[tuple[Labels, Array]] = []
    for item, rows in chosen:
        line = timeline(item)
        if line is None:
            continue
        quantiles = [labels.get("quantile") for labels in rows]
        readings = readings_over_time(item, line, times) if any(quantiles) else None
        for labels, quantile in zip(rows, quantiles, strict=True):
            if quantile is None:
                result.append((labels, line.compute_at(times)))
            elif readings is not None:
                result.append((labels, readings[QUANTILES.index(float(quantile))]))
    return result


async def _form(request: Request) -> Form:
    query = request.url.query
    if request.method == "POST":
        query += "&" + (await request.body()).decode("utf-8", errors="replace")
    path_parameters = {name: [str(value)] for name, value in request.path_params.items()}
    return parse_qs(query, max_num_fields=100) | path_parameters


def _one(form: Form, name: str, default: str | None = None) -> str:
    values = form.get(name)
    if values:
        return values[0]
    if default is None:
        raise ValueError(f"{name} is missing")
    return default


def _time(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text)
            value = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise ValueError(
                f"{name} = {text[:40]!r} is not a time; give Unix seconds or RFC 3339"
            ) from None
    if not 0 <= value <= MAX_UNIX_SECONDS:
        raise ValueError(f"{name} = {text[:40]!r} is out of bounds")
    return value


def _duration(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        parts = _DURATION.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(
                f"step = {text[:40]!r} is not a duration; give seconds or 15s, 1m, 2h"
            ) from None
        value = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 1e-3 <= value <= MAX_UNIX_SECONDS:
        raise ValueError(f"step = {text[:40]!r} is out of bounds")
    return value
