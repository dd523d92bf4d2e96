"""`rollcast up --resume` of a run that has ended, with other settings, and with a Prometheus beside
it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rollcast.config.run import load_run_config
from rollcast.local.monitor import SCRAPE_SECONDS, prometheus_spec
from rollcast.local.ports import free_port
from rollcast.local.process import Service
from testkit.forecaster.prometheus_server import PROMETHEUS
from testkit.forked_programs import ForkedPrograms
from testkit.monitoring.grafana import FORECASTER, ask, load, panels, query
from testkit.monitoring.recording import Recording
from testkit.system.audit import read_lines
from testkit.system.command import read_output, rollcast
from testkit.system.harness import wait_for
from tests.system.ten_lines import BATCH, STEPS, check_a_finished_run, minimal_settings

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

MORE = 16
"""With other settings: enough for a Prometheus to read the trainer's page some times."""


def test_a_run_that_has_ended_goes_on_with_other_settings_and_its_prometheus_sees_it(
    tmp_path: Path, model_folder: Path, programs: ForkedPrograms
) -> None:
    settings = minimal_settings(tmp_path, model_folder)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "runs" / settings["run"]
    with rollcast(tmp_path, "up", "--config", "run.yaml", programs=programs) as up:
        assert up.wait(600) == 0, read_output(tmp_path)
    check_a_finished_run(tmp_path, folder)

    settings["budget"]["steps"] = STEPS + MORE
    settings["recipe"] = BATCH | {"optimizer": {"learning_rate": 1e-6}}
    settings["local"] = {"generators": 1, "trainer_ranks": 1}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "said").unlink()
    with rollcast(
        tmp_path, "up", "--config", "run.yaml", "--resume", "--monitor", programs=programs
    ) as up:
        assert up.wait(600) == 0, read_output(tmp_path)
    if PROMETHEUS is not None:
        check_what_its_prometheus_kept(folder, PROMETHEUS)
    lines = [
        line.partition(" ")[2]
        for line in read_output(tmp_path).splitlines()
        if "resumed with another setting" in line
    ]
    assert lines == [
        "resumed with another setting: recipe.optimizer.learning_rate 5e-07 -> 1e-06: the schedule "
        "goes on at its step with the new one",
        f"resumed with another setting: budget.steps {STEPS} -> {STEPS + MORE}",
        "resumed with another setting: local.generators 2 -> 1",
        "resumed with another setting: local.trainer_ranks 2 -> 1",
    ]
    rates = [line["learning_rate"] for line in read_lines(folder / "steps.jsonl")]
    of_old = [step / 100 * 5e-7 for step in range(1, STEPS + 1)]
    of_new = [step / 100 * 1e-6 for step in range(STEPS + 1, STEPS + MORE + 1)]
    assert rates == pytest.approx([*of_old, *of_new]), "those of the last steps are of the new one"


def check_what_its_prometheus_kept(folder: Path, prometheus: str) -> None:
    """Every query of its dashboards and every rule, asked after the run: nothing of the run waits
    for the answers.
    """
    monitor, config = folder / "monitor", load_run_config(folder / "run.json")
    # The port of then may be another run's by now, whose Prometheus would answer instead.
    local = config.local.model_copy(update={"prometheus_port": free_port("127.0.0.1")})
    config = config.model_copy(update={"local": local})
    server = Service(prometheus_spec(config.run_folder, config.local.prometheus_port, prometheus))
    url = f"http://127.0.0.1:{config.local.prometheus_port}"
    began = read_lines(folder / "evaluations.jsonl")[-1]["at"] - 30.0
    server.start()
    try:
        wait_for(
            lambda: rules_of(url) and {rule["health"] for rule in rules_of(url)} == {"ok"},
            60,
            "all rules hold",
        )
        (read,) = query(
            url,
            "query_range",
            query="rollcast_trainer_step",
            start=began,
            end=time.time(),
            step=1.0,
        ).rows
        recording = Recording(
            url,
            "",
            (config.run,),
            began=began,
            at=read[1][-1][0],
            namespace="",
            scrape_seconds=SCRAPE_SECONDS,
        )
        boards = sorted((monitor / "dashboards").glob("*.json"))
        assert len(boards) == 5
        for board in boards:
            asked = [target for panel in panels(load(board)) for target in panel["targets"]]
            answers = [
                ask(target, recording, 0.5)
                for target in asked
                if target["datasource"]["uid"] != FORECASTER
            ]
            found = [labels for answer in answers for labels, _ in answer.rows]
            assert found, f"{board.name}: none of {len(answers)} queries finds the run"
            assert not [labels for labels in found if "namespace" in labels]
    finally:
        server.terminate()
        wait_for(lambda: server.poll() is not None, 30, "it stops when it is asked to")


def rules_of(url: str) -> list[dict[str, Any]]:
    try:
        groups = httpx.get(f"{url}/api/v1/rules", timeout=10.0).json()["data"]["groups"]
    except (httpx.HTTPError, ValueError):
        return []
    return [rule for group in groups for rule in group["rules"]]
