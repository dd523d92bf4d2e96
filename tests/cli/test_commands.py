from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rollcast.cli.dashboard import render, sparkline
from rollcast.config.recipe import Recipe
from rollcast.config.run import load_run_config
from rollcast.local.status import EvaluationPoint, ForecastReading, RunStatus

ROOT = Path(__file__).parents[2]
RUN_FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml"))


def rollcast(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100"},
    )


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_every_shipped_run_file_is_right(path: Path) -> None:
    load_run_config(path)


def test_there_is_a_demo_among_the_shipped_run_files() -> None:
    assert "demo" in {path.stem for path in RUN_FILES}


def test_help_names_the_commands_and_version_answers() -> None:
    shown = rollcast("--help")
    assert shown.returncode == 0
    for command in ("demo", "up", "config", "generator", "trainer", "forecaster", "version"):
        assert f"\n  {command} " in shown.stdout
    assert rollcast("version").stdout.strip()


def test_config_check_names_field_value_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: Bad Name\nmodel: {path: m}\nrecipe: {loss: {kind: cispo, ratio_max: -1}}\nextra: 1\n")
    checked = rollcast("config", "check", str(file))
    assert checked.returncode == 2
    assert "recipe.loss.cispo.ratio_max = -1 is wrong" in checked.stderr
    assert "run = 'Bad Name' is wrong" in checked.stderr
    assert "extra is not a setting" in checked.stderr
    assert "Traceback" not in checked.stderr
    assert rollcast("config", "check", str(ROOT / "configs/demo.yaml")).returncode == 0


def test_config_schema_describes_every_setting() -> None:
    schema = json.loads(rollcast("config", "schema").stdout)
    assert schema["properties"]["seed"]["description"].startswith("Of prompt order")


@pytest.mark.parametrize("service", ["generator", "trainer", "forecaster"])
def test_a_starter_becomes_the_service(service: str) -> None:
    shown = rollcast(service, "--help")
    assert shown.returncode == 0
    assert "--config" in shown.stdout
    assert f"rollcast.{service}" in shown.stdout


def test_up_with_a_wrong_model_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: r\nmodel: {path: /no/such}\nredis: {port: 0}\nrpc: {port: 0}\nforecaster: {http_port: 0}\n")
    started = rollcast("up", "--config", str(file), cwd=tmp_path)
    assert started.returncode == 2
    assert started.stderr.count("\n") == 1
    assert started.stderr.startswith("error: model.path = /no/such")
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_the_dashboard_shows_what_the_run_is_doing() -> None:
    config = load_run_config(ROOT / "configs/demo.yaml")
    points = tuple(EvaluationPoint(1, 8 * i, i / 100, i / 10, 0.01) for i in range(11))
    status = RunStatus(
        step=80,
        budget_share=0.4,
        reward_mean=0.55,
        compute_device_hours=0.1,
        evaluations=points,
        staleness={0: 10, 1: 30},
        tokens_per_second=12_345.6,
        generators_ready=1,
        forecast=ForecastReading("forecastable", (0.8, 0.9, 0.95), (0.1, 0.2, 0.3), (0.7, 0.8, 0.85), 0.3),
    )
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115  # closed with the console
    console.print(render(config, status, ["12:00:00 hello"], "http://127.0.0.1:8400"))
    console.print(render(config, RunStatus(), [], None))
    console.file.close()
    shown = console.export_text()
    for text in (
        f"step 80 of {config.budget.steps}",
        "12,346",
        "75.0%",
        "0.800 [0.700, 0.850]",
        "hello",
        "127.0.0.1:8400",
        "too early",
    ):
        assert text in shown
    assert sparkline(points) in shown


def test_a_sparkline_rises_with_the_pass_rate() -> None:
    points = [EvaluationPoint(1, i, 0.0, i / 7, 0.0) for i in range(8)]
    assert sparkline(points) == "▁▂▃▄▅▆▇█"
    assert len(sparkline(points * 10, width=40)) == 40


def test_the_scalerl_file_is_the_default_recipe_and_each_leave_one_out_changes_one_setting() -> None:
    scalerl = load_run_config(ROOT / "configs/recipes/scalerl.yaml").recipe
    assert scalerl == Recipe()
    changed = [
        [name for name in Recipe.model_fields if getattr(load_run_config(path).recipe, name) != getattr(scalerl, name)]
        for path in sorted((ROOT / "configs/recipes/leave-one-out").glob("*.yaml"))
    ]
    assert sorted(changed) == sorted(
        [
            ["advantage_normalisation"],
            ["aggregation"],
            ["length_control"],
            ["lm_head"],
            ["loss"],
            ["no_positive_resampling"],
            ["schedule"],
            ["zero_variance_filter"],
        ]
    )
