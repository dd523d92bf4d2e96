"""What a run looks like while it goes on: on a real terminal, and where there is none."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from rollcast.cli import views
from rollcast.config.connections import Http
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.generator.grading import VerifierFailures
from rollcast.runfolder.event_log import read_events
from rollcast.runfolder.verifier_failures import failures_file
from rollcast.tasks.verifiers import find_verifier, run_verifier
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from testkit.terminal import Terminal
from tests.cli.command import rollcast

PROGRAM = """
import sys, time
from pathlib import Path
from rollcast.cli.views import make_view
from rollcast.config.run import load_run_config
from rollcast.local.supervisor import RunState

stop = Path(sys.argv[2] + ".stop")
with make_view() as view:
    print(type(view).__name__)
    view.begin(load_run_config(Path(sys.argv[1])))
    view.report("generator-0 killed by SIGKILL; starting it again", trouble=True)
    for number in range(40):
        view.report(f"event {number}")
    while True:
        view.tick(RunState.STOPPING if stop.exists() else RunState.RUNNING)
        Path(sys.argv[2]).touch()
        time.sleep(0.2)
"""


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    data = {
        "run": "mine",
        "folder": str(tmp_path),
        "model": {"path": "m"},
        "budget": {"steps": 200},
    }
    config = parse_run_config(data, source="test")
    config.run_folder.mkdir()
    write_resolved(config, config.run_folder / "run.json")
    publish_port(config.run_folder, "trainer", 1)
    return config


def write_steps(config: RunConfig, began: float) -> None:
    """Four, two seconds apart."""
    steps = [{"step": step, "at": began + 2.0 * step} for step in range(1, 5)]
    (config.run_folder / "steps.jsonl").write_text(
        "".join(json.dumps(step) + "\n" for step in steps)
    )


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (60, 20)])
def test_a_picture_stands_still_on_a_terminal_and_the_error_is_in_it(
    config: RunConfig, tmp_path: Path, columns: int, lines: int
) -> None:
    drawn = tmp_path / "drawn"
    command = [sys.executable, "-c", PROGRAM, str(config.run_folder / "run.json"), str(drawn)]
    with Terminal(command, tmp_path, {}, columns, lines) as terminal:

        def whole() -> bool:
            """Between two redrawings, the phases read, and nothing has scrolled away."""
            screen = terminal.screen()
            return (
                screen.startswith("LivePicture")
                and "✓ trainer reads the model" in screen
                and "event 39" in screen
            )

        assert terminal.wait(whole, 60), terminal.full_output()
        shown = terminal.screen().splitlines()
        now = os.stat(config.run_folder / "run.json").st_mtime
        write_steps(config, now)
        assert terminal.wait(lambda: "next step" in terminal.screen(), 60), terminal.full_output()
        drawn.with_suffix(".stop").touch()
        assert terminal.wait(lambda: "stopping for" in terminal.screen(), 60), (
            terminal.full_output()
        )
        assert "next step" not in terminal.screen(), "nothing more is due"
    assert len(shown) <= lines
    assert shown[1].startswith("rollcast mine · starting")
    assert any(line.startswith("! ") and "killed by SIGKILL" in line for line in shown)
    assert not any("..." in line for line in shown)
    assert len(read_events(config.run_folder)) >= 41


def test_the_first_failure_of_a_verifier_stands_on_the_screen_with_its_line(
    config: RunConfig, tmp_path: Path
) -> None:
    """What a function really raised, written down as a generator does, on a screen of the usual
    size.
    """
    (tmp_path / "reward.py").write_text(
        "def grade(completion, row):\n    return row['answer'] / 0\n"
    )
    name = f"{tmp_path}/reward.py:grade"
    failed = run_verifier(find_verifier(name), "7", json.dumps({"answer": 7}))
    failures = VerifierFailures(Exporter("mine"), failures_file(config.run_folder, "generator-0"))
    failures.note(name, failed.failure)
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        str(config.run_folder / "run.json"),
        str(tmp_path / "drawn"),
    ]
    with Terminal(command, tmp_path, {}) as terminal:
        assert terminal.wait(
            lambda: "left out" in terminal.screen() and "event 39" in terminal.screen(), 60
        )
        shown = terminal.screen()
        for number in (2, 4, 8, 16):
            for _ in range(number // 2):
                failures.note(name, "a later failure")
            assert terminal.wait(
                lambda number=number: f" {number} completions" in terminal.screen(),  # type: ignore[misc]
                60,
            )
        later = " ".join(terminal.screen().split())
    trouble = " ".join(shown[shown.index("\n! ") :].split())
    assert "gives no verdict: ZeroDivisionError: division by zero" in trouble
    assert "line 2); completions without a grade are left out" in trouble
    assert "16 completions so far, first ZeroDivisionError: division by zero" in later, (
        "its line does not scroll away"
    )
    assert later.count("completions so far") == 1, "a count takes the place of the one before"


@pytest.mark.parametrize("terminal", ["dumb", ""])
def test_a_terminal_that_cannot_draw_gets_lines(
    config: RunConfig, tmp_path: Path, terminal: str
) -> None:
    drawn = tmp_path / "drawn"
    command = [sys.executable, "-c", PROGRAM, str(config.run_folder / "run.json"), str(drawn)]
    with Terminal(command, tmp_path, {"TERM": terminal}, 100, 60) as shown:
        assert shown.wait(lambda: drawn.exists() and "trainer reads" in shown.screen(), 60), (
            shown.full_output()
        )
        said = shown.full_output()
    assert said.startswith("PlainView")
    assert "warning: generator-0 killed by SIGKILL; starting it again" in said
    assert "error:" not in said, "the run goes on"
    assert "trainer reads the model: after" in said


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    config: RunConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(views, "REFRESH_SECONDS", 0.0)
    view = views.PlainView()
    view.begin(config)
    view.tick()
    assert re.search(r"engine starts: \d+ s, first weights: waits", capsys.readouterr().out)
    now = os.stat(config.run_folder / "run.json").st_mtime
    write_steps(config, now)
    monkeypatch.setattr(time, "time", lambda: now + 8.0)
    view.tick()
    assert "step 4 of 200, 2.0 s a step, next step in 2 s" in capsys.readouterr().out


def test_without_a_terminal_the_wait_for_the_first_step_says_what_came_back(
    config: RunConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(views, "REFRESH_SECONDS", 0.0)
    exporter = Exporter("mine")
    exporter.add(trainer_metrics.GROUP_SIGNALS, 3.0, signal="truncated")
    server = HttpServer(
        service_routes(exporter.render, lambda: (True, "ok")),
        listen("127.0.0.1", 0, setting="port"),
        Http(),
    )
    server.start()
    try:
        publish_port(config.run_folder, "trainer", server.port)
        view = views.PlainView()
        view.begin(config)
        view.tick()
    finally:
        server.stop()
    assert ", 3 groups came back, 0 usable: 3 with every answer cut off" in capsys.readouterr().out
    view.tick()
    assert "came back" not in capsys.readouterr().out, "a trainer that is gone has told nothing"


def test_a_resumed_run_tells_what_was_measured_before_in_one_line(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "REFRESH_SECONDS", 0.0)
    curve = config.run_folder / "evaluations.jsonl"
    earlier = [
        {
            "incarnation": 1,
            "step": step,
            "pass_rate": 0.25,
            "compute_device_hours": 0.01 * step,
            "standard_error": 0.03,
        }
        for step in (0, 4, 8)
    ]
    curve.write_text("".join(json.dumps(point) + "\n" for point in earlier))
    follower = views.Follower(config)
    assert not [line for line in follower.news() if "resumed" in line], (
        "it may have lost some of them"
    )
    began = {
        "incarnation": 2,
        "started_from": 6,
        "at": time.time(),
    }  # after a crash, from a checkpoint
    (config.run_folder / "incarnations.jsonl").write_text(json.dumps(began) + "\n")
    write_steps(config, time.time())
    assert [line for line in follower.news() if "resumed" in line] == [
        (
            "resumed with 2 evaluations of before, the last at step 4: pass rate 0.250 ± 0.030 at "
            "0.0400 device-hours"
        )
    ]
    new = {
        "incarnation": 2,
        "step": 12,
        "pass_rate": 0.5,
        "compute_device_hours": 0.12,
        "started_from": 6,
    }
    with curve.open("a") as file:
        file.write(json.dumps(new) + "\n")
    assert follower.news() == ["step 12: pass rate 0.500 at 0.1200 device-hours"]


def test_sentences_break_between_words_on_a_terminal_and_not_at_all_into_a_pipe(
    tmp_path: Path,
) -> None:
    (tmp_path / "curve.csv").write_text(
        "step,pass_rate\n" + "".join(f"{n},0.{n + 2}\n" for n in range(7))
    )
    command = [sys.executable, "-m", "rollcast.cli.main", "fit", "curve.csv"]
    piped = rollcast("fit", "curve.csv", folder=tmp_path).stdout
    sentences = [line for line in piped.splitlines() if len(line) > 50 and not line.startswith(" ")]
    assert len(sentences) >= 3
    with Terminal(command, tmp_path, {}, columns=50) as terminal:
        assert terminal.end(60) == 0
        shown = terminal.full_output()
    assert all(sentence in " ".join(shown.split()) for sentence in sentences)
