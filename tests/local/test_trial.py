"""What a trial's figures mean for a run, and what is said of them; test_trial_with_an_engine.py
makes a trial.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from rollcast.cli.try_out import completions, duration_lines, figures
from rollcast.config.errors import PassingError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local import trial as trials
from rollcast.local.process import Command
from rollcast.local.trial import TimeOutlook, outlook
from rollcast.runfolder.trial_records import TrialRecord, TriedCompletion, UpdateTrialRecord


def config(**budget: float) -> RunConfig:
    return parse_run_config(
        {
            "run": "r",
            "model": {"path": "m"},
            "tasks": {
                "evaluation": {"num_prompts": 10, "rollouts_per_prompt": 4, "every_steps": 5}
            },
            "recipe": {
                "prompts_per_step": 8,
                "rollouts_per_prompt": 4,
                "length_control": {"kind": "none"},
            },
            "budget": budget,
            "local": {"generators": 2},
        },
        source="test",
    )


def outlook_of(settings: RunConfig, tried: TrialRecord, update: UpdateTrialRecord) -> TimeOutlook:
    """What the figures mean for these settings."""
    return outlook(
        settings.recipe,
        settings.tasks,
        settings.budget,
        tried,
        update,
        generators=settings.local.generators,
        workers=settings.generator.tensor_parallel,
    )


def trial(*rewards: float, truncated: int = 0, failed: int = 0) -> TrialRecord:
    tried = [TriedCompletion("p", "t", 10, 100, number < truncated, reward,
        "ok" if reward else "wrong")
             for number, reward in enumerate(rewards)]  # fmt: skip
    tried += [TriedCompletion("p", "t", 10, 100, False, 0.0, "error", "it broke")] * failed
    return TrialRecord(20.0, 2.0, 1.0, tuple(tried))


QUICK = UpdateTrialRecord(passes_seconds=0.25, rest_seconds=0.5, num_devices=3)


def test_a_step_and_the_budget_take_what_the_measured_rates_make_of_them() -> None:
    """8 completions of 100 tokens in 2 s: 400 tokens/s;
    two generators make 8 completions a second.
    """
    tried = trial(*[1.0] * 4, *[0.0] * 4)
    found = outlook_of(config(steps=20), tried, QUICK)
    assert found.tokens_per_second == pytest.approx(400)
    assert found.generation_seconds == pytest.approx(8 * 4 / 8)
    assert found.update_seconds == pytest.approx(4 * 0.25 + 0.5), (
        "32 completions in place of 8; one optimizer step"
    )
    assert found.step_seconds == found.generation_seconds, "the slower of the two"
    assert found.evaluation_seconds == pytest.approx(10 * 4 / 8)
    assert found.total_seconds == pytest.approx(20 * 4 + 5 * 5)
    slow = outlook_of(config(steps=20), tried, UpdateTrialRecord(2.0, 1.0, 3))
    assert slow.step_seconds == pytest.approx(4 * 2.0 + 1.0)
    assert slow.total_seconds == pytest.approx(20 * 9 + 5 * 5)


def test_device_hours_are_enough_for_as_many_steps_as_their_devices_make_in_their_time() -> None:
    """Three devices train and two sample: an hour of each is 5 device-hours.

    5 steps and an evaluation take 25 s.
    """
    hour = config(device_hours=5.0)
    found = outlook_of(hour, trial(*[1.0] * 4, *[0.0] * 4), QUICK)
    assert found.num_devices == 5
    assert found.num_steps == int((3600 - 5) / 5)
    assert found.total_seconds == pytest.approx(3600, abs=10)
    said = "the budget of 5 device-hours, enough for 719 steps on 5 devices: about 59.9 min"
    assert said in duration_lines(hour.recipe, hour.budget.device_hours, found)
    both = outlook_of(config(device_hours=5.0, steps=7), trial(1.0), QUICK)
    assert both.num_steps == 7, "the first of the two ends it"
    endless = outlook_of(config(), trial(1.0), QUICK)
    assert (endless.num_steps, endless.total_seconds) == (None, None)


def test_what_is_wrong_is_said_before_a_run_is_paid_for() -> None:
    said = figures(
        config(steps=1).recipe.max_completion_tokens, trial(*[0.0] * 6, truncated=3, failed=2)
    )
    assert said[0] == "pass rate: 0.000 of 6 completions", "what has no verdict is in no pass rate"
    assert said[1].startswith(
        "caution: every one has reward 0, and groups without a difference teach nothing"
    )
    assert said[2] == "no verdict on 2 completions: it broke"
    assert said[3] == "lengths: median 100, longest 100 of 14336 tokens; 38% were cut off"
    assert not any(
        "caution" in line
        for line in figures(config(steps=1).recipe.max_completion_tokens, trial(0.0, 1.0))
    )


def test_what_has_no_verdict_is_shown_as_none_and_never_as_a_zero() -> None:
    said = completions(trial(0.0, 1.0, failed=2))
    assert said[2] == "    rewards of all 4: 0 1 - -"


def test_what_a_model_writes_does_not_command_the_terminal() -> None:
    hostile = TriedCompletion(
        "p", "42\x1b[2J\x1b]0;mine\x07\n\x9b1A", 1, 4, False, 0.0, "error", "said \x1b[1A"
    )
    said = completions(TrialRecord(1.0, 1.0, 1.0, (hostile,)))
    assert said[1] == "    42\ufffd[2J\ufffd]0;mine\ufffd \ufffd1A -> no verdict: said \ufffd[1A"


def test_a_trial_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine is a process of its own, which would keep the memory."""
    pid = tmp_path / "pid"
    source = (
        "import pathlib, subprocess, sys, time\n"
        "engine = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        "start_new_session=True)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(engine.pid))\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(trials, "TRIAL_SECONDS", 8.0)
    with pytest.raises(PassingError, match="no answer within 8 s; try fewer prompts"):
        trials._await_trial([Command((sys.executable, "-c", source), tmp_path / "log")])
    assert not psutil.pid_exists(int(pid.read_text()))
