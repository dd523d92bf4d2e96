"""The supervisor with stand-in scripts: real processes, really killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

STAND_INS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from rollcast.config.errors import UserError
from rollcast.local.process import Command, ServiceSpec
from rollcast.local.supervisor import ServiceLostError, Supervisor

folder = Path(sys.argv[1])

HEAD = "import os, signal, subprocess, sys, time; open(r'{}', 'a').write(f'{{os.getpid()}}\\\\n'); "

def spec(name, program, stop_order=0, stop_seconds=5.0, count=1, **more):
    head = HEAD.format(folder / f"{name}.pids")
    command = Command((sys.executable, "-c", head + program), folder / f"{name}.log")
    return ServiceSpec(name, (command,) * count, stop_order=stop_order, stop_seconds=stop_seconds, **more)

SLEEP = "time.sleep(600)"
NOTE = (
    "signal.signal(signal.SIGTERM, lambda *_: (open(r'%s', 'a').write('{0}\\\\n'), sys.exit(0)));"
    "time.sleep(600)" % (folder / "order")
)
"""
STILL_SAVES = (
    "report: trainer still saves the run's work, for so many s at most; Ctrl-C again ends it at once, and what was "
    "made since the checkpoint before is made again"
)


def run_supervisor(
    folder: Path,
    specs: str,
    *,
    limit: int = 3,
    interrupt_seconds: float = 100.0,
    tick: str = "lambda: None",
    more: str = "",
    prefix: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """A supervisor in a process of its own; it prints its ending, or the error's type and text."""
    program = STAND_INS + (
        "report = lambda line, trouble=False: print('report:', line, flush=True)\n"
        f"supervisor = Supervisor({specs}, restart_limit={limit}, interrupt_seconds={interrupt_seconds}, report=report,"
        f" tick={tick}, {more})\n"
        "print('up', flush=True)\n"
        "try:\n    print('ending:', supervisor.run(), flush=True)\n"
        "except (UserError, ServiceLostError, OSError) as error:\n    print(type(error).__name__, error, flush=True)\n"
    )
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pids(folder: Path, name: str) -> list[int]:
    path = folder / f"{name}.pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_all_gone(folder: Path) -> None:
    for path in folder.glob("*.pids"):
        pids = [int(line) for line in path.read_text().splitlines()]
        for pid in pids:
            wait_for(partial(gone, pid))


def test_the_run_ends_when_the_trainer_does_and_nothing_stays(tmp_path: Path) -> None:
    supervisor = run_supervisor(tmp_path, "[spec('redis', SLEEP), spec('trainer', 'time.sleep(0.5)')]")
    output, _ = supervisor.communicate(timeout=60)
    assert "ending: finished" in output
    assert_all_gone(tmp_path)


def test_a_killed_service_is_started_again_with_its_restart_arguments(tmp_path: Path) -> None:
    note = f"open(os.path.join(r'{tmp_path}', 'arguments'), 'a').write(' '.join(sys.argv[1:]) + '.'); time.sleep(600)"
    supervisor = run_supervisor(tmp_path, f"[spec('trainer', {note!r}, restart_arguments=('--resume',))]")
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
        tmp_path, "[spec('redis', SLEEP), spec('trainer', 'print(\"no luck\"); sys.exit(1)')]", limit=2
    )
    output, _ = supervisor.communicate(timeout=60)
    assert "ServiceLostError trainer ended with exit code 1: no luck" in output
    assert len(pids(tmp_path, "trainer")) == 3
    assert_all_gone(tmp_path)


UNLIKE = "import random; print(f'Traceback (most recent call last):\\nOSError: {random.choice([1, 22, 333])} wires'); "


@pytest.mark.parametrize("essential", [True, False])
def test_three_starts_that_fail_for_one_reason_are_enough_whatever_the_limit(tmp_path: Path, essential: bool) -> None:
    """Numbers of processes and the like differ from start to start, and the reason is the same."""
    program = UNLIKE + "sys.exit(1)"
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('generator', {program!r}, essential={essential}), spec('trainer', 'time.sleep(12)')]",
        limit=100,
    )
    output, _ = supervisor.communicate(timeout=120)
    assert len(pids(tmp_path, "generator")) == 3
    assert output.count("starting it again") == output.count("It said: OSError: ") == 2, "each is told with its reason"
    named = rf"generator ended with exit code 1: OSError: \d+ wires \(log: {tmp_path}/generator.log; 3 starts failed"
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
    killed = f"sys.stdout.flush(); os.kill(os.getpid(), 9) if len(open({started!r}).readlines()) < 5 else "
    program = UNLIKE + killed + "time.sleep(600)"
    supervisor = run_supervisor(tmp_path, f"[spec('trainer', {program!r})]", limit=5)
    wait_for(lambda: len(pids(tmp_path, "trainer")) == 5, 60)
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "It said" not in output
    assert "ending: stopped" in output


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
    supervisor = run_supervisor(tmp_path, f"[spec('trainer', SLEEP), spec('generator', {program!r})]", limit=3)
    wait_for(lambda: len(pids(tmp_path, "generator")) == 4)
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert output.count("generator ended with exit code 2; starting it again") == 2
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


@pytest.mark.parametrize("has_work", [True, False])
def test_a_run_given_up_for_a_users_mistake_has_time_to_save_its_work(tmp_path: Path, has_work: bool) -> None:
    saving = (
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(5), open(r'{tmp_path}/saved', 'w'), sys.exit(0)));"
        f"open(r'{tmp_path}/working', 'w'); time.sleep(600)"
    )
    wrong = f"[time.sleep(0.05) for _ in iter(lambda: os.path.exists(r'{tmp_path}/working'), True)]; sys.exit(2)"
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
        "signal.signal(signal.SIGTERM, lambda *_: (print('error: checkpoints cannot be written', flush=True),"
        f" os._exit(1))); open(r'{tmp_path}/ready', 'w'); time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path, f"[spec('redis', SLEEP, 3), spec('generator', SLEEP), spec('trainer', {failing!r}, 1, saves=True)]"
    )
    wait_for(lambda: (tmp_path / "ready").exists())
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    said = "trainer ended with exit code 1 while it stopped: checkpoints cannot be written (log: "
    assert output.count(f"report: {said}{tmp_path}/trainer.log)") == output.count("while it stopped") == 1
    assert "ending: stopped" in output


@pytest.mark.parametrize("stopping_too", [False, True])
def test_a_view_that_fails_stops_the_run_in_order_and_is_told_after(tmp_path: Path, stopping_too: bool) -> None:
    """The disk is full while the run goes on, or only while it stops."""
    tick = (
        'lambda: exec(\'if (folder / "ready").exists()'
        + (" and supervisor.asked_to_stop()" if stopping_too else "")
        + ': raise OSError(28, "disk full")\')'
    )
    note = f"open(r'{tmp_path}/ready', 'w'); "
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('redis', NOTE.format('redis'), 3), spec('trainer', NOTE.format('trainer') + '', 1),"
        f" spec('generator', NOTE.format('generator').replace('time.sleep', {note!r} + 'time.sleep'))]",
        tick=tick,
    )
    if stopping_too:
        wait_for(lambda: (tmp_path / "ready").exists())
        supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "OSError [Errno 28] disk full" in output
    assert (tmp_path / "order").read_text().split() == ["generator", "trainer", "redis"]
    assert_all_gone(tmp_path)


def test_the_run_goes_on_without_a_service_that_is_not_essential(tmp_path: Path) -> None:
    supervisor = run_supervisor(
        tmp_path, "[spec('forecaster', 'sys.exit(1)', essential=False), spec('trainer', 'time.sleep(2)')]", limit=0
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
        "[ServiceSpec('trainer', tuple(Command((sys.executable, '-c', HEAD.format(folder / 'trainer.pids') + program),"
        " folder / f'rank{{i}}.log') for i, program in enumerate([{!r}, {!r}])), stop_order=0, stop_seconds=5.0)]"
    )
    mistaken = run_supervisor(tmp_path, specs.format(rank.format(True, 2), rank.format(False, 2)))
    assert "UserError rank 1: mend it" in mistaken.communicate(timeout=60)[0]
    crashing = run_supervisor(tmp_path, specs.format(rank.format(True, 1), rank.format(False, 1)), limit=0)
    assert f"exit code 1: rank 1: mend it (log: {tmp_path}/rank1.log" in crashing.communicate(timeout=60)[0]
    assert_all_gone(tmp_path)


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_goes_away_stops_the_run_in_order_unless_it_was_to_be_ignored(
    tmp_path: Path, ignored: bool
) -> None:
    # Whoever runs the tests may have been told to ignore it, and processes inherit that.
    prefix = ("nohup",) if ignored else ("env", "--default-signal=HUP")
    note = f"open(r'{tmp_path}/ready', 'w'); time.sleep"
    supervisor = run_supervisor(
        tmp_path, f"[spec('trainer', NOTE.format('trainer').replace('time.sleep', {note!r}))]", prefix=prefix
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


def test_services_stop_in_order_and_a_deaf_one_is_killed_at_its_deadline(tmp_path: Path) -> None:
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{tmp_path}/deaf', 'w'); time.sleep(600)"
    supervisor = run_supervisor(
        tmp_path,
        "[spec('redis', NOTE.format('redis'), 3), spec('trainer', NOTE.format('trainer'), 1), "
        f"spec('generator', {deaf!r}, 0, stop_seconds=1.0)]",
    )
    wait_for(lambda: (tmp_path / "deaf").exists())
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=60)
    assert "generator did not stop in time and was killed" in output
    assert (tmp_path / "order").read_text().split() == ["trainer", "redis"]
    assert_all_gone(tmp_path)


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{tmp_path}/deaf', 'w'); time.sleep(600)"
    supervisor = run_supervisor(tmp_path, f"[spec('trainer', {deaf!r}, stop_seconds=500.0)]")
    wait_for(lambda: (tmp_path / "deaf").exists())
    supervisor.send_signal(signal.SIGINT)
    time.sleep(0.5)
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate(timeout=60)
    assert_all_gone(tmp_path)


def test_services_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = run_supervisor(tmp_path, "[spec('redis', SLEEP), spec('trainer', SLEEP, count=2)]")
    wait_for(lambda: len(pids(tmp_path, "trainer")) == 2 and len(pids(tmp_path, "redis")) == 1)
    supervisor.kill()
    supervisor.communicate(timeout=10)
    assert_all_gone(tmp_path)


def test_what_a_killed_service_leaves_behind_is_killed(tmp_path: Path) -> None:
    """An engine in its own session, as a generator's is, whose front end was killed."""
    engine = f"import os, time; open(r'{tmp_path}/engine.pids', 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    front_end = f"subprocess.Popen([sys.executable, '-c', {engine!r}], start_new_session=True); time.sleep(600)"
    supervisor = run_supervisor(tmp_path, f"[spec('generator', {front_end!r}), spec('trainer', SLEEP)]")
    wait_for(lambda: len(pids(tmp_path, "engine")) == 1)
    os.kill(pids(tmp_path, "generator")[0], signal.SIGKILL)
    wait_for(lambda: gone(pids(tmp_path, "engine")[0]))
    wait_for(lambda: len(pids(tmp_path, "engine")) == 2)
    assert not gone(pids(tmp_path, "engine")[1])
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate(timeout=60)
    assert_all_gone(tmp_path)


@pytest.mark.parametrize("at", ["start", "finish"])
def test_a_run_leaves_no_child_of_the_supervisor(tmp_path: Path, at: str) -> None:
    trainer = "sys.exit(2)" if at == "start" else "time.sleep(0.3)"
    supervisor = run_supervisor(tmp_path, f"[spec('redis', SLEEP), spec('trainer', {trainer!r})]")
    supervisor.communicate(timeout=60)
    assert_all_gone(tmp_path)


def test_a_run_that_has_made_nothing_is_stopped_at_once_whatever_its_services_do(tmp_path: Path) -> None:
    """Each has a minute to stop in order; before anything is made all of them have three seconds together."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{}', 'w'); time.sleep(600)"
    names = ("redis", "trainer", "generator")
    specs = ", ".join(f"spec({name!r}, {deaf.format(tmp_path / name)!r}, {i}, 60.0)" for i, name in enumerate(names))
    supervisor = run_supervisor(tmp_path, f"[{specs}]", more="worth_saving=lambda: False")
    wait_for(lambda: all((tmp_path / name).exists() for name in names))
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=30)  # three minutes where they are waited for
    assert "nothing is lost" in output
    assert "did not stop in time" not in output
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


def test_an_interrupt_ends_all_by_one_deadline_but_who_saves_the_work(tmp_path: Path) -> None:
    """Generator and loggers ignore the signal and have minutes; the checkpoint takes longer than all have."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{}', 'w'); time.sleep(600)"
    saving = (
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(4), open(r'{tmp_path}/saved', 'w'), sys.exit(0)));"
        f"open(r'{tmp_path}/trainer', 'w'); time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path,
        f"[spec('redis', NOTE.format('redis'), 3), spec('loggers', {deaf.format(tmp_path / 'loggers')!r}, 3, 500.0,"
        f" when_cut='told later'), spec('trainer', {saving!r}, 1, 500.0, saves=True),"
        f" spec('generator', {deaf.format(tmp_path / 'generator')!r}, 0, 500.0, when_cut='sampled again')]",
        interrupt_seconds=2.0,
    )
    wait_for(lambda: all((tmp_path / name).exists() for name in ("loggers", "trainer", "generator")))
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=100)  # 500 s where one of them has all of its own
    assert (tmp_path / "saved").exists(), "the checkpoint is not cut short"
    said = [re.sub(r"\d+ s", "so many s", line) for line in output.splitlines() if line.startswith("report:")]
    assert said[1:] == [
        "report: generator was cut short: sampled again",
        STILL_SAVES,
        "report: loggers was cut short: told later",
    ]
    assert "ending: stopped" in output
    assert (tmp_path / "order").read_text().split() == ["redis"]
    assert_all_gone(tmp_path)
