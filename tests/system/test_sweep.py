"""`rollcast sweep run` as a user meets it: an arm that cannot start, Ctrl-C in the second run, kill
-9 in a later one, and the same command until its answer.
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

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]

SWEEP = {
    "sweep": "tiny",
    "base": "run.yaml",
    "grid": {"recipe.optimizer.learning_rate": [5.0e-5, 1.0e-6]},
    "arms": [{"name": "dead", "settings": {"model.path": "no-such-model"}}],
    "target_device_hours": 0.02,
    "budget": {"device_hours": 0.1},
    "slice": 0.2,
    "min_slice_pauses": 0,
    "pause_below": 0,
    "least_gain": 0,
}


def test_a_sweep_is_stopped_killed_and_continued_to_its_answer(
    tmp_path: Path, settings: dict[str, Any], programs: ForkedPrograms
) -> None:
    settings |= {"redis": {"port": 0}, "rpc": {"port": 0}, "forecaster": {"http_port": 0}}
    settings["tasks"]["evaluation"]["every_steps"] = 2
    settings["generator"]["drain_seconds"] = 1
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP | {"folder": str(tmp_path / "s")}))
    command = ("sweep", "run", "sweep.yaml")
    folder = tmp_path / "s"
    runs = [folder / f"tiny-learning-rate-{rate}" for rate in ("5e-05", "1e-06")]

    def begun() -> list[Path]:
        return [run for run in runs if last_step(run) > 0]

    with rollcast(tmp_path, *command, programs=programs) as sweep:
        wait_for(lambda: goes_on(sweep, tmp_path) and len(begun()) == 1, 200, "a first step")
        family = psutil.Process(sweep.pid).children(recursive=True)
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(100) == 130, read_output(tmp_path)
        assert not [process for process in family if process.is_running()]
    first = begun()[0]
    lines = read_lines(folder / "sweep.jsonl")
    assert lines[-1]["ending"] == "interrupted"
    interrupted_at = last_step(first)

    with rollcast(tmp_path, *command, programs=programs) as sweep:
        wait_for(lambda: goes_on(sweep, tmp_path) and len(begun()) == 2, 300, "the second run")
        family = psutil.Process(sweep.pid).children(recursive=True)
        sweep.kill()
        psutil.wait_procs(family, timeout=30)
        assert not [process for process in family if process.is_running()]
    assert [line["step"] for line in read_lines(first / "steps.jsonl")] == list(
        range(1, last_step(first) + 1)
    ), "a pause loses and repeats no step"
    assert last_step(first) > interrupted_at

    picture = tmp_path / "sweep.svg"
    with rollcast(tmp_path, *command, "--json", "--plot", str(picture), programs=programs) as sweep:
        assert sweep.wait(400) == 0, read_output(tmp_path)
    answer = json.loads((folder / "sweep.json").read_text())
    assert answer["is_over"]
    assert answer["chosen"] in ("learning-rate-5e-05", "learning-rate-1e-06")
    spent = {arm["arm"]: arm for arm in answer["arms"]}
    assert spent["dead"]["paused"].startswith("failed: ")
    assert "no-such-model" in spent["dead"]["paused"]
    assert all(spent[run.name.removeprefix("tiny-")]["spent"] > 0 for run in runs)
    endings = [line.get("ending") for line in read_lines(folder / "sweep.jsonl")]
    # Twice, and once more at each start after that
    assert 2 <= endings.count("failed") <= 4
    assert endings.count("lost") == 1
    hours = [line.get("device_hours", 0.0) for line in read_lines(folder / "sweep.jsonl")]
    assert answer["spent"] == pytest.approx(sum(hours))
    assert picture.read_text().count("<svg") == 1
    assert answer["chosen"] in (folder / "sweep.html").read_text()
