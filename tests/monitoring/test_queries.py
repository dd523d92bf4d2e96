"""Every query of every dashboard and every alert, asked of a real Prometheus that scraped a real
run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS
from testkit.forked_programs import ForkedPrograms
from testkit.monitoring.excused import NOT_IN_A_LOCAL_RUN
from testkit.monitoring.grafana import DASHBOARDS, FILES, ask, load, panels, query, substituted
from testkit.monitoring.recording import NAMESPACE, Recording
from tests.monitoring.live_run import live_runs

pytestmark = [NEEDS_PROMETHEUS, pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(500)]

STEPS = 36
REACHED = 0.2
"""A target pass rate that the small model is past from the start."""
LAW = ("rollcast_forecast_asymptote", "rollcast_forecast_headroom")
"""Absent as long as the run's readings show no trend beyond their noise."""


def settings(model: Path) -> dict[str, Any]:
    return {
        "run": "watched",
        "model": {"path": str(model), "dtype": "float32", "max_length": 96},
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 2, "size": 800},
            "evaluation": {"num_prompts": 32, "rollouts_per_prompt": 4, "every_steps": 1},
        },
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": 4},
            "length_control": {"kind": "none"},
            "prompts_per_step": 8,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 64,
            "optimizer": {"learning_rate": 5e-5, "warmup_steps": 2},
        },
        "budget": {"steps": STEPS},
        "generator": {"slots": 64, "block_size": 32, "drain_seconds": 1},
        "trainer": {"tokens_per_micro_batch": 4096, "threads": 1, "checkpoint_every_steps": 10},
        "weights": {"heartbeat_timeout_seconds": 15, "bucket_timeout_seconds": 10},
    }


@pytest.fixture(scope="module")
def recording(
    tmp_path_factory: pytest.TempPathFactory, programs: ForkedPrograms
) -> Iterator[Recording]:
    model = ensure_base_model(BaseModel(max_digits=2, noise=0.25, steps=260), lambda share: None)
    with live_runs(
        tmp_path_factory.mktemp("watched"), [settings(model)], 420.0, programs
    ) as recording:
        yield recording


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_the_dashboard_finds_the_run(path: Path, recording: Recording) -> None:
    described = (
        f'max_over_time(rollcast_forecast_described{{run="{recording.runs[-1]}"}}[10m]) == 1'
    )
    has_law = bool(query(recording.prometheus, "query", query=described, time=recording.at).rows)
    silent = []
    for panel in panels(load(path)):
        for target in panel["targets"]:
            answer = ask(target, recording, REACHED)
            needs_law = any(name in target["expr"] for name in LAW)
            if (
                not answer.rows
                and target["expr"] not in NOT_IN_A_LOCAL_RUN
                and (has_law or not needs_law)
            ):
                silent.append(f"{panel['title']}: {target['expr']}")
    assert not silent, "\n".join(silent)


def test_the_shares_of_the_trainers_time_never_exceed_it(recording: Recording) -> None:
    (panel,) = (
        panel
        for panel in panels(load(FILES / "dashboards" / "pipeline.json"))
        if panel["title"] == "Where the trainer's time goes"
    )
    shares: dict[float, float] = {}
    for target in panel["targets"]:
        for _, values in ask(target, recording, REACHED).rows:
            for at, share in values:
                shares[at] = shares.get(at, 0.0) + share
    assert 0.5 < max(shares.values()) <= 1.0 + 1e-6


def test_nothing_is_excused_that_nobody_asks() -> None:
    asked = {
        target["expr"]
        for path in DASHBOARDS
        for panel in panels(load(path))
        for target in panel["targets"]
    }
    asked |= {selector for _, expression in _alerts() for selector in _selectors(expression)}
    assert set(NOT_IN_A_LOCAL_RUN) <= asked


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_variable_lists_the_run(path: Path, recording: Recording) -> None:
    asked = [
        variable for variable in load(path)["templating"]["list"] if variable["type"] == "query"
    ]
    assert asked
    for variable in asked:
        selector, label = re.fullmatch(
            (
                r"label_values\((.*), "
                r"(\w+)\)"
            ),
            variable["query"],
        ).groups()  # type: ignore[union-attr]
        asked_for = substituted(f"group by ({label}) ({selector})", recording, REACHED)
        answer = query(recording.prometheus, "query", query=asked_for, time=recording.at)
        expected = [NAMESPACE] if label == "namespace" else list(recording.runs)
        assert [labels[label] for labels, _ in answer.rows] == expected


def test_the_alerts_are_answered_and_all_they_look_at_is_there(recording: Recording) -> None:
    silent = []
    for name, expression in _alerts():
        query(
            recording.prometheus,
            "query",
            query=substituted(expression, recording, REACHED),
            time=recording.at,
        )
        for selector in _selectors(expression):
            asked = f"last_over_time({substituted(selector, recording, REACHED)}[10m])"
            seen = query(recording.prometheus, "query", query=asked, time=recording.at)
            if not seen.rows and selector not in NOT_IN_A_LOCAL_RUN:
                silent.append(f"{name}: {selector}")
    assert not silent, "\n".join(silent)


def _alerts() -> list[tuple[str, str]]:
    """Name and expression of each, with $run where the chart puts the run."""
    text = (FILES / "rules.yaml").read_text()
    for placeholder, value in {
        "@NAMESPACE@": "$namespace",
        "@RUN@": "$run",
        "@NO_STEP_MINUTES@": "30",
        "@RUNBOOK@": "x",
    }.items():
        text = text.replace(placeholder, value)
    (group,) = yaml.safe_load(text)["groups"]
    return [(rule["alert"], rule["expr"]) for rule in group["rules"]]


def _selectors(expression: str) -> set[str]:
    return set(re.findall(r"\w+\{[^}]*\}", expression))


def test_the_band_by_compute_is_the_forecasters(recording: Recording) -> None:
    """The one table behind the curve: 40 computes for each of five quantiles, and evaluations at
    their compute.
    """
    (panel,) = (
        panel
        for panel in panels(load(FILES / "dashboards" / "run.json"))
        if panel["type"] == "trend"
    )
    (target,) = panel["targets"]
    points = {
        (labels["series"], float(labels["at"])): values[0][1]
        for labels, values in ask(target, recording, REACHED).rows
    }
    by_series: dict[str, dict[float, float]] = {}
    for (series, at), value in points.items():
        by_series.setdefault(series, {})[at] = value
    measured = by_series.pop("measured")
    assert {name: len(values) for name, values in by_series.items()} == dict.fromkeys(
        ("0.05", "0.25", "0.5", "0.75", "0.95"), 40
    )
    assert all(
        by_series["0.05"][at] <= by_series["0.5"][at] <= by_series["0.95"][at]
        for at in by_series["0.5"]
    )
    pass_rates, computes = (
        _by_step(f"rollcast_eval_{name}", recording)
        for name in ("pass_rate", "compute_device_hours")
    )
    assert measured == {
        computes[step]: pass_rate for step, pass_rate in pass_rates.items() if computes[step] > 0
    }


def _by_step(metric: str, recording: Recording) -> dict[str, float]:
    expression = f'last_over_time({metric}{{run="{recording.runs[-1]}"}}[10m])'
    answer = query(recording.prometheus, "query", query=expression, time=recording.at)
    return {labels["step"]: values[0][1] for labels, values in answer.rows}
