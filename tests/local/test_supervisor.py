"""The supervisor with stand-in scripts: real processes, really killed."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.local.stand_ins import assert_all_gone, gone, pids, run_supervisor, wait_for


def test_the_run_ends_when_the_trainer_does_and_nothing_stays(tmp_path: Path) -> None:
    supervisor = run_supervisor(
        tmp_path, "[spec('redis', SLEEP), spec('trainer', 'time.sleep(0.5)')]"
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "ending: finished" in output
    assert_all_gone(tmp_path)


def test_a_killed_service_is_started_again_with_its_restart_arguments(tmp_path: Path) -> None:
    note = (
        f"open(os.path.join(r'{tmp_path}', 'arguments'), 'a').write(' '.join(sys.argv[1:]) + '.'); "
        "time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path, f"[spec('trainer', {note!r}, restart_arguments=('--resume',))]"
    )
    wait_for(lambda: (tmp_path / "arguments").exists())
    os.kill(pids(tmp_path, "trainer")[0], signal.SIGKILL)
    wait_for(lambda: (tmp_path / "arguments").read_text() == ".--resume.")
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "report: trainer killed by SIGKILL; starting it again" in output
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


def test_a_service_that_keeps_dying_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    supervisor = run_supervisor(
        tmp_path,
        "[spec('redis', SLEEP), spec('trainer', 'print(\"no luck\"); sys.exit(1)')]",
        limit=2,
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "ServiceLostError trainer ended with exit code 1: no luck" in output
    assert "{'is_from_outside': False}" in output
    assert len(pids(tmp_path, "trainer")) == 3
    assert_all_gone(tmp_path)


UNLIKE = (
    "import random; print(f'Traceback (most recent call last):\\nOSError: {random.choice([1, 22, "
    "333])} wires'); "
)


@pytest.mark.parametrize("essential", [True, False])
def test_three_starts_that_fail_for_one_reason_are_enough_whatever_the_limit(
    tmp_path: Path, essential: bool
) -> None:
    """Numbers of processes and the like differ from start to start, and the reason is the same."""
    program = UNLIKE + "sys.exit(1)"
    supervisor = run_supervisor(
        tmp_path,
        (
            f"[spec('generator', {program!r}, essential={essential}), spec('trainer', "
            "'time.sleep(8)')]"
        ),
        limit=100,
    )
    output, _ = supervisor.communicate(timeout=120)
    assert len(pids(tmp_path, "generator")) == 3
    assert output.count("starting it again") == output.count("It said: OSError: ") == 2, (
        "each is told with its reason"
    )
    named = (
        rf"generator ended with exit code 1: OSError: \d+ wires \(log: {tmp_path}/generator.log; 3 "
        r"starts failed"
    )
    assert re.search(named, output)
    assert ("ServiceLostError" in output) is essential
    assert ("ending: finished" in output) is not essential
    assert_all_gone(tmp_path)


def test_starts_that_served_before_they_failed_count_by_the_limit_alone(tmp_path: Path) -> None:
    ready = f"open(r'{tmp_path}/port', 'w').write('1'); "
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('trainer', {ready + UNLIKE + 'sys.exit(1)'!r}, ready_file=folder / 'port')]",
        limit=3,
    )
    output, _ = supervisor.communicate(timeout=120)
    assert len(pids(tmp_path, "trainer")) == 4
    assert "restarted 3 times" in output


def test_a_service_that_is_killed_from_outside_has_no_reason_of_its_own(tmp_path: Path) -> None:
    started = str(tmp_path / "trainer.pids")
    killed = (
        f"sys.stdout.flush(); os.kill(os.getpid(), 9) if len(open({started!r}).readlines()) < 5 "
        "else "
    )
    program = UNLIKE + killed + "time.sleep(600)"
    supervisor = run_supervisor(tmp_path, f"[spec('trainer', {program!r})]", limit=5)
    wait_for(lambda: len(pids(tmp_path, "trainer")) == 5, 60)
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "It said" not in output
    assert "ending: stopped" in output


def test_a_run_that_is_killed_from_outside_again_and_again_is_lost_by_no_fault_of_its_own(
    tmp_path: Path,
) -> None:
    supervisor = run_supervisor(
        tmp_path, "[spec('trainer', 'print(1); os.kill(os.getpid(), 9)')]", limit=1
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "ServiceLostError trainer killed by SIGKILL (log: " in output
    assert "{'is_from_outside': True}" in output


def test_the_reason_is_that_of_the_newest_start(tmp_path: Path) -> None:
    (tmp_path / "trainer.log").write_text("error: of a run of last week\n")
    supervisor = run_supervisor(tmp_path, "[spec('trainer', 'sys.exit(1)')]", limit=0)
    output, _ = supervisor.communicate(timeout=60)
    assert "last week" not in output
    assert "ended with exit code 1: no message (log: " in output


def test_a_users_mistake_in_a_service_is_not_tried_again(tmp_path: Path) -> None:
    program = "print('model.path = x: mend it'); sys.exit(2)"
    supervisor = run_supervisor(tmp_path, f"[spec('redis', SLEEP), spec('trainer', {program!r})]")
    output, _ = supervisor.communicate(timeout=60)
    assert f"UserError model.path = x: mend it (log: {tmp_path}/trainer.log)" in output
    assert len(pids(tmp_path, "trainer")) == 1
    assert_all_gone(tmp_path)


def test_the_same_exit_code_after_a_restart_is_a_death_like_any_other(tmp_path: Path) -> None:
    program = (
        f"starts = len(open(r'{tmp_path}/generator.pids').readlines());"
        "print('no', ['memory', 'room', 'luck', 'end'][starts - 1]);"
        "sys.exit(1 if starts == 1 else 2) if starts < 4 else time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path, f"[spec('trainer', SLEEP), spec('generator', {program!r})]", limit=3
    )
    wait_for(lambda: len(pids(tmp_path, "generator")) == 4)
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert output.count("generator ended with exit code 2; starting it again") == 2
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


def test_wrong_numbers_twice_end_the_run_after_a_restart_too(tmp_path: Path) -> None:
    program = (
        f"starts = len(open(r'{tmp_path}/trainer.pids').readlines());"
        "print('rank 1 differs'); sys.exit(1 if starts == 1 else 77)"
    )
    supervisor = run_supervisor(tmp_path, f"[spec('redis', SLEEP), spec('trainer', {program!r})]")
    output, _ = supervisor.communicate(timeout=60)
    assert "trainer ended with exit code 1; starting it again" in output
    assert f"UserError rank 1 differs (log: {tmp_path}/trainer.log)" in output
    assert len(pids(tmp_path, "trainer")) == 2
    assert_all_gone(tmp_path)


@pytest.mark.parametrize("has_work", [True, False])
def test_a_run_given_up_for_a_users_mistake_has_time_to_save_its_work(
    tmp_path: Path, has_work: bool
) -> None:
    saving = (
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(5), open(r'{tmp_path}/saved', 'w'), "
        f"sys.exit(0)));open(r'{tmp_path}/working', 'w'); time.sleep(600)"
    )
    wrong = (
        f"[time.sleep(0.05) for _ in iter(lambda: os.path.exists(r'{tmp_path}/working'), True)]; "
        "sys.exit(2)"
    )
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('trainer', {saving!r}, 1, stop_seconds=60.0), spec('generator', {wrong!r})]",
        more=f"worth_saving=lambda: {has_work}",
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "UserError" in output
    assert (tmp_path / "saved").exists() is has_work
    assert_all_gone(tmp_path)


def test_a_checkpoint_that_cannot_be_written_at_the_end_is_told(tmp_path: Path) -> None:
    """The others end with codes of their own, which say nothing of work that is lost."""
    failing = (
        "signal.signal(signal.SIGTERM, lambda *_: (print('error: checkpoints cannot be written', "
        f"flush=True), os._exit(1))); open(r'{tmp_path}/ready', 'w'); time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path,
        (
            f"[spec('redis', SLEEP, 3), spec('generator', SLEEP), spec('trainer', {failing!r}, 1, "
            "saves=True)]"
        ),
    )
    wait_for(lambda: (tmp_path / "ready").exists())
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    said = "trainer ended with exit code 1 while it stopped: checkpoints cannot be written (log: "
    assert (
        output.count(f"report: {said}{tmp_path}/trainer.log)")
        == output.count("while it stopped")
        == 1
    )
    assert "ending: stopped" in output


@pytest.mark.parametrize("stopping_too", [False, True])
def test_a_view_that_fails_stops_the_run_in_order_and_is_told_after(
    tmp_path: Path, stopping_too: bool
) -> None:
    """The disk is full while the run goes on, or only while it stops."""
    tick = (
        'lambda: exec(\'if len(list(folder.glob("ready-*"))) == 3'
        + (" and supervisor.asked_to_stop()" if stopping_too else "")
        + ': raise OSError(28, "disk full")\')'
    )

    def service(name: str, stop_order: int) -> str:
        """One that says when it can be asked to stop."""
        ready = f"open(r'{tmp_path}/ready-{name}', 'w'); time.sleep"
        code = f"NOTE.format({name!r}).replace('time.sleep', {ready!r})"
        if name == "trainer":
            # It takes a second to stop: time enough for the view to be drawn.
            code += ".replace('sys.exit(0)', 'time.sleep(1), sys.exit(0)')"
        return f"spec({name!r}, {code}, {stop_order})"

    specs = ", ".join((service("redis", 3), service("trainer", 1), service("generator", 0)))
    supervisor = run_supervisor(tmp_path, f"[{specs}]", tick=tick)
    if stopping_too:
        wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
        supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "OSError [Errno 28] disk full" in output
    assert (tmp_path / "order").read_text().split() == ["generator", "trainer", "redis"]
    assert_all_gone(tmp_path)


def test_the_run_goes_on_without_a_service_that_is_not_essential(tmp_path: Path) -> None:
    supervisor = run_supervisor(
        tmp_path,
        "[spec('forecaster', 'sys.exit(1)', essential=False), spec('trainer', 'time.sleep(2)')]",
        limit=0,
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "forecaster ended with exit code 1" in output
    assert "the run goes on without it" in output
    assert "ending: finished" in output


def test_when_one_rank_dies_all_are_started_again(tmp_path: Path) -> None:
    supervisor = run_supervisor(tmp_path, "[spec('trainer', SLEEP, count=2)]")
    wait_for(lambda: len(pids(tmp_path, "trainer")) == 2)
    first = pids(tmp_path, "trainer")
    os.kill(first[1], signal.SIGKILL)
    wait_for(lambda: len(pids(tmp_path, "trainer")) == 4)
    assert all(gone(pid) for pid in first)
    supervisor.send_signal(signal.SIGTERM)
    output, _ = supervisor.communicate(timeout=60)
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


def test_the_words_shown_are_those_of_the_rank_that_failed(tmp_path: Path) -> None:
    rank = "time.sleep(600) if {} else (print('rank 1: mend it'), sys.exit({}))"
    specs = (
        "[ServiceSpec('trainer', tuple(Command((sys.executable, '-c', HEAD.format(folder / "
        "'trainer.pids') + program),"
        " folder / f'rank{{i}}.log') for i, program in enumerate([{!r}, {!r}])), stop_order=0, "
        "stop_seconds=5.0)]"
    )
    mistaken = run_supervisor(tmp_path, specs.format(rank.format(True, 2), rank.format(False, 2)))
    assert "UserError rank 1: mend it" in mistaken.communicate(timeout=60)[0]
    crashing = run_supervisor(
        tmp_path, specs.format(rank.format(True, 1), rank.format(False, 1)), limit=0
    )
    assert (
        f"exit code 1: rank 1: mend it (log: {tmp_path}/rank1.log"
        in crashing.communicate(timeout=60)[0]
    )
    assert_all_gone(tmp_path)


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_goes_away_stops_the_run_in_order_unless_it_was_to_be_ignored(
    tmp_path: Path, ignored: bool
) -> None:
    # Whoever runs the tests may have been told to ignore it, and processes inherit that.
    prefix = ("nohup",) if ignored else ("env", "--default-signal=HUP")
    note = f"open(r'{tmp_path}/ready', 'w'); time.sleep"
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('trainer', NOTE.format('trainer').replace('time.sleep', {note!r}))]",
        prefix=prefix,
    )
    wait_for(lambda: (tmp_path / "ready").exists())
    supervisor.send_signal(signal.SIGHUP)
    if ignored:
        time.sleep(1.0)
        assert supervisor.poll() is None
        supervisor.send_signal(signal.SIGTERM)
    output, _ = supervisor.communicate(timeout=60)
    assert "ending: stopped" in output
    assert (tmp_path / "order").read_text().split() == ["trainer"]
    assert_all_gone(tmp_path)
