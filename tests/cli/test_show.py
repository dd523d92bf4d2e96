"""`rollcast show`: one look at a run, whoever runs it or not."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from rollcast.connections.port_files import publish_port
from rollcast.runfolder.event_log import note
from testkit.terminal import Terminal
from tests.cli.command import refusal, rollcast
from tests.cli.run_folders import ended_early, settings, trained


def words(*arguments: object) -> str:
    answered = rollcast("show", *arguments)
    assert answered.returncode == 0, answered.stderr
    assert all(len(line) <= 100 for line in answered.stdout.splitlines()[:-1])
    return " ".join(answered.stdout.split())


def test_a_stopped_run_shows_its_curve_its_forecast_and_what_continues_it(tmp_path: Path) -> None:
    config = settings(tmp_path)
    trained(config)
    note(config.run_folder, "generator-0 killed by SIGKILL; starting it again", trouble=True)
    said = words(config.run_folder)
    assert "rollcast mine · stopped" in said
    assert "step 100 of 200" in said
    assert "50%" in said
    end = re.search(r"forecast [a-z ]+ · end ([0-9.]+) \[([0-9.]+), ([0-9.]+)\] · ceiling", said)
    assert end is not None, said
    assert 0.6 < float(end[2]) <= float(end[1]) <= float(end[3]) < 0.8, "the curve goes to 0.7"
    assert "2 device-hours, the end" in said
    assert "!" in said
    assert "generator-0 killed by SIGKILL" in said
    assert said.endswith(f"up --config {config.run_folder}/up.json --resume")
    assert "generators" not in said.partition("!")[0]


def test_a_port_of_a_run_that_is_over_is_not_asked(tmp_path: Path) -> None:
    """Somebody else's by now, who is not to see the run's token."""
    config = settings(tmp_path)
    trained(config)
    with socket.create_server(("127.0.0.1", 0)) as other:
        publish_port(config.run_folder, "trainer", other.getsockname()[1])
        words(config.run_folder)
        other.settimeout(0.1)
        with pytest.raises(TimeoutError):
            other.accept()


@pytest.mark.parametrize("name", ["run.json", "result.json", "evaluations.jsonl"])
def test_a_torn_file_of_the_folder_is_no_traceback(tmp_path: Path, name: str) -> None:
    config = settings(tmp_path)
    trained(config)
    file = config.run_folder / name
    file.write_bytes(file.read_bytes()[:-30] if file.exists() else b'{"initial": 0.')
    answered = rollcast("show", config.run_folder)
    assert "Traceback" not in answered.stderr
    assert (answered.returncode == 0) == (name != "run.json")


def test_a_run_that_starts_shows_its_phases(tmp_path: Path) -> None:
    config = settings(tmp_path)
    publish_port(config.run_folder, "trainer", 1)
    with (config.run_folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = words(config.run_folder)
    assert re.search(r"rollcast mine · starting for \d+ s", said)
    assert "✓ trainer reads the model" in said
    assert "▸ engine starts" in said
    assert "continue with" not in said


def test_a_finished_run_says_how_its_forecast_did_wherever_its_folder_lies_now(
    tmp_path: Path,
) -> None:
    config = settings(tmp_path)
    trained(config, 200)
    result = {
        "initial": 0.1,
        "measured": 0.7,
        "frozen": None,
        "error": None,
        "last_value_error": None,
        "inside": None,
        "gain_share_at_freeze": None,
        "num_evaluations": 41,
    }
    (config.run_folder / "result.json").write_text(json.dumps(result))
    moved = tmp_path / "elsewhere"
    os.rename(config.run_folder, moved)
    said = words(moved)
    assert "rollcast elsewhere · finished, its budget is spent" in said
    assert "the end: pass rate 0.700" in said
    assert ": as much compute again gains" in said, said
    assert "waits for" not in said
    assert "no step for" not in said
    fitted = json.loads(rollcast("fit", moved, "--json").stdout)
    assert f"advice {fitted['advice']['headline'].lower()}" in said
    assert f"forecast {fitted['verdict'].replace('_', ' ')} ·" in said


def test_a_run_that_stop_when_ended_says_so(tmp_path: Path) -> None:
    config = settings(tmp_path)
    trained(config, 150)
    ended_early(config)
    said = words(config.run_folder)
    assert "rollcast mine · finished, ended by `stop_when`" in said
    assert "advice stop: `stop_when` ended the run: saturated on 3 refits in a row" in said


def test_what_is_no_run_of_this_machine_is_one_sentence(tmp_path: Path) -> None:
    assert refusal("show", str(tmp_path)) == (
        f"RUN = {tmp_path}: holds no run.json; give the folder of a run of `rollcast up`, as "
        "runs/NAME"
    )


def test_on_a_terminal_the_last_sentence_breaks_between_words_and_a_run_under_way_has_none(
    tmp_path: Path,
) -> None:
    config = settings(tmp_path)
    trained(config, 200)
    command = [sys.executable, "-m", "rollcast.cli.main", "show", str(config.run_folder)]
    with (config.run_folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with Terminal(command, tmp_path, {}, columns=80) as terminal:
            assert terminal.end(60) == 0, terminal.full_output()
            assert "rollcast mine · running" in terminal.full_output()
    result = {
        "initial": 0.1,
        "measured": 0.7,
        "frozen": None,
        "error": None,
        "last_value_error": None,
        "inside": None,
    }
    result |= {"gain_share_at_freeze": None, "num_evaluations": 41}
    (config.run_folder / "result.json").write_text(json.dumps(result))
    with Terminal(command, tmp_path, {}, columns=50) as terminal:
        assert terminal.end(60) == 0, terminal.full_output()
        shown = terminal.full_output()
    last = shown[shown.index("the end: ") :].split("\n")
    assert len([line for line in last if line.strip()]) > 1
    assert " ".join(" ".join(last).split()) in words(config.run_folder), "no word is broken"


INCOMPLETE = "1 evaluation with less than 90 % of the prompts graded left out"


def spoilt(folder: Path) -> None:
    """The newest evaluation lost half of its prompts, and all others of them were solved."""
    lines = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    lines[-1] |= {"pass_rate": 1.0, "num_prompts": 20, "asked_prompts": 40, "missing_prompts": 20}
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_fit_and_show_leave_an_incomplete_evaluation_out_and_say_so(tmp_path: Path) -> None:
    config = settings(tmp_path)
    trained(config)
    whole = json.loads(rollcast("fit", config.run_folder, "--json").stdout)
    spoilt(config.run_folder)
    answered = rollcast("fit", config.run_folder, "--json")
    assert answered.returncode == 0
    assert INCOMPLETE in answered.stderr
    answer = json.loads(answered.stdout)
    assert (answer["incomplete"], answer["num_points"]) == (1, whole["num_points"] - 1)
    assert answer["pass_rate"] < 0.8
    assert whole["incomplete"] == 0
    shown = words(config.run_folder)
    assert INCOMPLETE in shown
    assert "pass rate 1.000" not in shown
