"""How the supervisor ends a run: in order, by a deadline, and with nothing left."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.local.stand_ins import assert_all_gone, gone, pids, run_supervisor, wait_for

STILL_SAVES = (
    "report: trainer still saves the run's work, for so many s at most; Ctrl-C again ends it at "
    "once, and what was made since the checkpoint before is made again"
)


def test_services_stop_in_order_and_a_deaf_one_is_killed_at_its_deadline(tmp_path: Path) -> None:
    deaf = (
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{tmp_path}/deaf', 'w'); "
        "time.sleep(600)"
    )
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
    deaf = (
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{tmp_path}/deaf', 'w'); "
        "time.sleep(600)"
    )
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
    engine = (
        f"import os, time; open(r'{tmp_path}/engine.pids', 'a').write(f'{{os.getpid()}}\\n'); "
        "time.sleep(600)"
    )
    front_end = (
        f"subprocess.Popen([sys.executable, '-c', {engine!r}], start_new_session=True); "
        "time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path, f"[spec('generator', {front_end!r}), spec('trainer', SLEEP)]"
    )
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


def test_a_run_that_has_made_nothing_is_stopped_at_once_whatever_its_services_do(
    tmp_path: Path,
) -> None:
    """Each has a minute to stop in order; before anything is made all of them have three seconds
    together.
    """
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{}', 'w'); time.sleep(600)"
    names = ("redis", "trainer", "generator")
    specs = ", ".join(
        f"spec({name!r}, {deaf.format(tmp_path / name)!r}, {i}, 60.0)"
        for i, name in enumerate(names)
    )
    supervisor = run_supervisor(tmp_path, f"[{specs}]", more="worth_saving=lambda: False")
    wait_for(lambda: all((tmp_path / name).exists() for name in names))
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=30)  # three minutes where they are waited for
    assert "nothing is lost" in output
    assert "did not stop in time" not in output
    assert "ending: stopped" in output
    assert_all_gone(tmp_path)


def test_an_interrupt_ends_all_by_one_deadline_but_who_saves_the_work(tmp_path: Path) -> None:
    """Generator and loggers ignore the signal and have minutes; the checkpoint takes longer than
    all have.
    """
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(r'{}', 'w'); time.sleep(600)"
    saving = (
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(4), open(r'{tmp_path}/saved', 'w'), "
        f"sys.exit(0)));open(r'{tmp_path}/trainer', 'w'); time.sleep(600)"
    )
    supervisor = run_supervisor(
        tmp_path,
        "[spec('redis', NOTE.format('redis'), 3), spec('loggers', "
        f"{deaf.format(tmp_path / 'loggers')!r}, 3, 500.0, when_cut='told later'), spec('trainer', "
        f"{saving!r}, 1, 500.0, saves=True), spec('generator', "
        f"{deaf.format(tmp_path / 'generator')!r}, 0, 500.0, when_cut='sampled again')]",
        interrupt_seconds=2.0,
    )
    wait_for(
        lambda: all((tmp_path / name).exists() for name in ("loggers", "trainer", "generator"))
    )
    supervisor.send_signal(signal.SIGINT)
    output, _ = supervisor.communicate(timeout=100)  # 500 s where one of them has all of its own
    assert (tmp_path / "saved").exists(), "the checkpoint is not cut short"
    said = [
        re.sub(r"\d+ s", "so many s", line)
        for line in output.splitlines()
        if line.startswith("report:")
    ]
    assert said[1:] == [
        "report: generator was cut short: sampled again",
        STILL_SAVES,
        "report: loggers was cut short: told later",
    ]
    assert "ending: stopped" in output
    assert (tmp_path / "order").read_text().split() == ["redis"]
    assert_all_gone(tmp_path)
