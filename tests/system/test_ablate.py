"""`rollcast ablate` as a user meets it: started, Ctrl-C in its second run, continued to its table,
a run that hangs.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import read_lines
from testkit.system.command import goes_on, last_step, read_output, rollcast
from testkit.system.harness import wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(500)]

STEPS = 6


def test_a_set_is_stopped_by_ctrl_c_and_continued_to_its_table(
    tmp_path: Path, settings: dict[str, Any], programs: ForkedPrograms
) -> None:
    settings |= {
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "forecaster": {"http_port": 0},
    }
    settings["tasks"]["evaluation"]["every_steps"] = 2
    settings["generator"]["drain_seconds"] = 1
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "set"
    first, second = folder / "small-whole", folder / "small-without-pipeline"
    command = (
        "ablate",
        "--config",
        "run.yaml",
        "--without",
        "pipeline",
        "--steps",
        str(STEPS),
        "--folder",
        "set",
    )

    with rollcast(tmp_path, *command, programs=programs) as ablate:
        wait_for(
            lambda: goes_on(ablate, tmp_path) and last_step(second) >= 2,
            300,
            "steps of the second run",
        )
        family = psutil.Process(ablate.pid).children(recursive=True)
        ablate.send_signal(signal.SIGINT)
        assert ablate.wait(100) == 130, read_output(tmp_path)
        assert not [process for process in family if process.is_running()]
    assert "[1/2] small-whole: step 0: pass rate" in read_output(tmp_path)
    states = {record["run"]: record["state"] for record in lines_of_set(folder)}
    assert states == {"small-whole": "finished", "small-without-pipeline": "interrupted"}
    made = (first / "steps.jsonl").stat().st_mtime_ns

    with rollcast(tmp_path, *command, "--continue", "--json", programs=programs) as ablate:
        assert ablate.wait(300) == 0, read_output(tmp_path)
    for run in (first, second):
        assert [line["step"] for line in read_lines(run / "steps.jsonl")] == list(
            range(1, STEPS + 1)
        )
    assert (first / "steps.jsonl").stat().st_mtime_ns == made
    resolved = [
        json.loads((run / "run.json").read_text())["recipe"]["schedule"]["kind"]
        for run in (first, second)
    ]
    assert resolved == ["pipeline", "ppo-off-policy"]
    *_, last = read_lines(
        second / "evaluations.jsonl"
    )  # 6 steps are no whole number of rounds: the last are judged
    assert {last[name].partition(".")[2] for name in ("version_min", "version_max")} == {str(STEPS)}
    table = json.loads((folder / "ablation.json").read_text())["leave_one_out"]
    assert [row["curve"] for row in table["rows"]] == ["whole", "without-pipeline"]
    # Runs this short need not have learned anything.
    assert table["rows"][1]["kind"].startswith(
        ("ceiling mover", "efficiency shaper", "cannot tell", "not compared")
    )

    more = ("--without", "pipeline,cispo", "--run-minutes", "0.1")
    with rollcast(tmp_path, *command, *more, "--continue", programs=programs) as ablate:
        assert ablate.wait(150) == 1, read_output(tmp_path)
    assert "small-without-cispo failed: took longer than 6 s and was stopped" in read_output(
        tmp_path
    )
    assert "part left out" in read_output(tmp_path)
    states = {record["run"]: record["state"] for record in lines_of_set(folder)}
    assert states == {
        "small-whole": "finished",
        "small-without-pipeline": "finished",
        "small-without-cispo": "failed",
    }


def test_a_set_with_a_budget_takes_turns_and_ends_in_the_answer_of_a_sweep(
    tmp_path: Path, settings: dict[str, Any], programs: ForkedPrograms
) -> None:
    settings |= {"redis": {"port": 0}, "rpc": {"port": 0}, "forecaster": {"http_port": 0}}
    settings |= {"budget": {"device_hours": 0.02}}
    settings["tasks"]["evaluation"]["every_steps"] = 2
    settings["generator"]["drain_seconds"] = 1
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    command = ("ablate", "--config", "run.yaml", "--without", "pipeline", "--folder", "set")
    with rollcast(tmp_path, *command, "--budget", "0.1", programs=programs) as ablate:
        assert ablate.wait(400) == 0, read_output(tmp_path)
    printed = read_output(tmp_path)
    answer = json.loads((tmp_path / "set" / "sweep.json").read_text())
    assert answer["is_over"]
    assert answer["budget"] == 0.1
    assert answer["target"] == 0.02
    assert {arm["arm"] for arm in answer["arms"]} == {"whole", "without-pipeline"}
    assert f"Use {answer['chosen']}: it is the best at 0.02 device-hours" in printed
    assert "paused because" in printed
    kinds = {}
    for run in ("small-whole", "small-without-pipeline"):
        folder = tmp_path / "set" / run
        assert read_lines(folder / "evaluations.jsonl")[-1]["pass_rate"] >= 0
        recipe = json.loads((folder / "run.json").read_text())["recipe"]
        kinds[run] = recipe["schedule"]["kind"]
    assert kinds == {"small-whole": "pipeline", "small-without-pipeline": "ppo-off-policy"}
    hours = [line.get("device_hours", 0.0) for line in read_lines(tmp_path / "set/sweep.jsonl")]
    assert answer["spent"] == pytest.approx(sum(hours))

    # The same command finds nothing left to do
    with rollcast(tmp_path, *command, "--budget", "0.1", "--json", programs=programs) as ablate:
        assert ablate.wait(100) == 0, read_output(tmp_path)
    assert json.loads((tmp_path / "set" / "sweep.json").read_text())["chosen"] == answer["chosen"]


def lines_of_set(folder: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((folder / "ablation.json").read_text())["set"]
    return records
