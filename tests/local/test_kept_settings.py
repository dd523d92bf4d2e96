"""run.json and up.json of a start whose trainer accepts the settings or refuses them.

The trainer is a small program of the test; supervisor, files and folder are the run's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local import up
from rollcast.local.kept_settings import undone_if_refused
from rollcast.local.process import Command, ServiceSpec
from rollcast.local.supervisor import RunState
from rollcast.local.up import run_locally
from rollcast.runfolder.kept_checkpoints import kept_versions

ACCEPT = "folder.joinpath('ports').mkdir(); folder.joinpath('ports/rpc').write_text('1');"
REFUSE = "print('error: the training prompts differ', flush=True); sys.exit(2);"
STEP = "folder.joinpath('steps.jsonl').open('a').write('{}\\n');"


def settings(folder: Path, **changes: Any) -> RunConfig:
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "model.safetensors").write_bytes(b"0" * 1000)
    ports = {"redis": {"port": 0}, "rpc": {"port": 0}, "forecaster": {"http_port": 0}}
    data = {
        "run": "r",
        "folder": str(folder / "runs"),
        "model": {"path": str(folder / "model")},
        **ports,
    }
    return parse_run_config(
        data | {"tasks": {"evaluation": {"num_prompts": 20}}} | changes, source="test"
    )


class Lines:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, config: RunConfig) -> None: ...

    def report(self, line: str, *, trouble: bool = False) -> None:
        self.lines.append(line)

    def tick(self, run_state: RunState = RunState.RUNNING) -> None: ...


def run(
    config: RunConfig,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    resume: bool = True,
    step: int | None = None,
) -> tuple[RunState, list[str]]:
    """Run with one service, the trainer, of which `program` is the Python code."""
    head = f"import sys, time; from pathlib import Path; folder = Path({str(config.run_folder)!r});"
    command = Command(
        (sys.executable, "-c", head + program), config.run_folder / "logs" / "trainer.log"
    )
    trainer = ServiceSpec("trainer", (command,), stop_order=0, stop_seconds=5.0)
    monkeypatch.setattr(up, "service_specs", lambda *_, **__: [trainer])
    view = Lines()
    return run_locally(config, resume=resume, step=step, view=view), view.lines


def settings_in(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())["budget"]["steps"]


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that ended after a step, with a budget of 10 steps."""
    folder = tmp_path / "runs" / "r"
    run(settings(tmp_path, budget={"steps": 10}), STEP + ACCEPT, monkeypatch, resume=False)
    (folder / "format.json").write_text('{"format": 1}')
    assert settings_in(folder, "up.json") == 10
    return folder


def test_settings_that_the_trainer_refuses_do_not_become_those_that_continue_the_run(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = (begun / "run.json").stat()
    with pytest.raises(UserError, match="the training prompts differ"):
        run(settings(tmp_path, budget={"steps": 20}), REFUSE, monkeypatch)
    assert settings_in(begun, "up.json") == 10
    assert settings_in(begun, "run.json") == 10
    assert ((begun / "run.json").stat().st_mode, (begun / "run.json").stat().st_mtime) == (
        started.st_mode,
        started.st_mtime,
    )


def test_checkpoints_that_a_refused_start_set_aside_are_back(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = begun / "checkpoints"
    for name in ("1.1", "1.2"):
        (place / name).mkdir(parents=True)
        (place / name / "controller.json").write_text("{}")
    config = settings(tmp_path, budget={"steps": 10})
    with pytest.raises(UserError, match="the training prompts differ"):
        run(config, REFUSE, monkeypatch, step=1)
    assert list(kept_versions(place)) == [(1, 1), (1, 2)]
    _, lines = run(config, ACCEPT, monkeypatch, step=1)
    assert list(kept_versions(place)) == [(1, 1)]
    assert any(
        line.startswith("the run goes on from its checkpoint of step 1; later") for line in lines
    )
    with pytest.raises(
        UserError, match=r"--step 7: .* holds no checkpoint of that step; kept are those of steps 1"
    ):
        run(config, ACCEPT, monkeypatch, step=7)


def test_settings_that_it_accepts_do_even_if_it_ends_badly_later(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError):
        run(
            settings(tmp_path, budget={"steps": 20}),
            ACCEPT + "time.sleep(2);" + REFUSE,
            monkeypatch,
        )
    assert (settings_in(begun, "up.json"), settings_in(begun, "run.json")) == (20, 20)


def test_a_first_start_that_is_refused_leaves_settings_that_are_changed_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "r"
    for steps in (10, 20):
        with pytest.raises(UserError):
            run(settings(tmp_path, budget={"steps": steps}), REFUSE, monkeypatch, resume=False)
        assert settings_in(folder, "up.json") == steps


def test_a_run_that_stop_when_ends_says_so(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = json.dumps({"what": "stopped_early", "step": 1, "reason": "the rest gains too little"})
    program = ACCEPT + f"folder.joinpath('tasks.jsonl').write_text({mark!r} + chr(10))"
    ending, lines = run(settings(tmp_path, budget={"steps": 20}), program, monkeypatch)
    assert ending is RunState.FINISHED
    assert lines[-1] == "`stop_when` ended the run: the rest gains too little"


def test_a_misspelt_run_is_not_begun(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UserError,
        match=r"--resume: run = rr: no run of this name was started in .*; did you mean r\?",
    ):
        run(settings(tmp_path, run="rr", budget={"steps": 1}), ACCEPT, monkeypatch)
    assert not (tmp_path / "runs" / "rr").exists()


def test_a_port_file_that_a_killed_run_left_is_no_acceptance(begun: Path) -> None:
    (begun / "ports").mkdir(exist_ok=True)
    (begun / "ports" / "rpc").write_text("1")

    def start() -> None:
        with undone_if_refused(begun):
            (begun / "up.json").write_text("{}")
            raise UserError("refused")

    with pytest.raises(UserError, match="refused"):
        start()
    assert settings_in(begun, "up.json") == 10
