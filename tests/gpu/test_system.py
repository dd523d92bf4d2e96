"""The scenario of a whole run: kill, return, Ctrl-C, resume; on a stand-in for `rollcast up` that
can go wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.gpu import live_run, run_settings, system
from testkit.gpu.live_run import RunFailedError

COMMAND = (sys.executable, str(Path(__file__).with_name("stand_in_run.py")))


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run it with one fault; returns its figures."""
    settings = {"run": run_settings.RUN, "local": {"generators": 2}}
    monkeypatch.setattr(system, "demo_settings", lambda folder, *, is_small: settings)
    monkeypatch.setattr(live_run, "ENDING_SECONDS", 20.0)

    def run(fault: str) -> dict[str, Any]:
        monkeypatch.setenv("STAND_IN", fault)
        return system.with_kill_and_resume(tmp_path, is_small=True, command=COMMAND)

    return run


def test_a_run_that_survives_and_resumes_meets_every_target(scenario: Any) -> None:
    figures = scenario("")
    assert all(figures["targets"].values()), figures
    assert figures["steps_meanwhile"] > 0
    assert figures["exit_code_after_ctrl_c"] == 130
    assert figures["resumed_from_step"] == figures["stopped_at_step"]
    assert figures["tasks"]["used"] == figures["steps"]


def test_what_went_wrong_is_a_missed_target(scenario: Any) -> None:
    figures = scenario("waits,forgets,twice")
    assert not any(figures["targets"].values()), figures
    assert len(figures["targets"]) == 3
    assert "settled more than once" in figures["tasks"]


def test_a_generator_that_does_not_return_ends_the_part_with_the_last_words(
    scenario: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "START_SECONDS", 3.0)
    with pytest.raises(RunFailedError, match=r"the return did not happen within 3 s"):
        scenario("stays-away")


def test_a_command_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo the card is too small; exit 2")
    with (
        live_run.LiveRun(tmp_path, "proof", [], has_card=False, command=command) as run,
        pytest.raises(RunFailedError, match="the command ended with 2: the card is too small"),
    ):
        run.wait_for(lambda: False, 60.0, "a step")
