"""Where the trainer's time goes, asked of Prometheus's own evaluator: shares never exceed the
whole.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from testkit.forecaster.prometheus_server import PROMTOOL
from testkit.monitoring.grafana import FILES, load, panels

UPDATE = 'rollcast_step_seconds_sum{run="r",job="trainer"}'
RUN = '{run="r"}'
WAIT = 'rollcast_trainer_wait_seconds_total{run="r",job="trainer",for="%s"}'
pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="needs promtool (Debian package prometheus)"
)


def test_an_update_longer_than_the_window_fills_it_and_no_more(tmp_path: Path) -> None:
    """It counts at its end: 30 s in a window of 20 s.

    Before it, two fifths of the time were waits.
    """
    (panel,) = (
        panel
        for panel in panels(load(FILES / "dashboards" / "pipeline.json"))
        if panel["title"] == "Where the trainer's time goes"
    )
    values = {"$namespace": "", "$run": "r", "$__rate_interval": "20s"}
    update, wait = (substituted(target["expr"], values) for target in panel["targets"])
    waits = [
        {"labels": '{run="r",for="batch"}', "value": 0.4},
        {"labels": '{run="r",for="weights"}', "value": 0},
    ]
    case = {
        "interval": "5s",
        "input_series": [
            {"series": UPDATE, "values": "0 0 0 0 0 30 30 30 30 30 31 32 33"},
            {"series": WAIT % "batch", "values": "0 2 4 6 8 8 8 8 8 8 9 9 9"},
            {"series": WAIT % "weights", "values": "0 0 0 0 0 1 1 1 1 1 1 1 1"},
        ],
        "promql_expr_test": [
            asked('sum by (run) (rate(rollcast_step_seconds_sum{run="r"}[20s]))', "30s", 1.5),
            asked(f"sum by (run) ({update}) + on (run) sum by (run) ({wait})", "30s", 1.0),
            {"expr": wait, "eval_time": "20s", "exp_samples": waits},
        ],
    }
    file = tmp_path / "time.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [], "evaluation_interval": "5s", "tests": [case]})
    )
    assert PROMTOOL is not None
    told = subprocess.run(
        [PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


def substituted(expression: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


def asked(expression: str, at: str, value: float) -> dict[str, object]:
    return {"expr": expression, "eval_time": at, "exp_samples": [{"labels": RUN, "value": value}]}
