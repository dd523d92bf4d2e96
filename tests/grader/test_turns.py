"""The queue of a grader without a grader: who gets a turn, who is sent away, what is shown."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rollcast.grader.turns import NoTurn, Turns
from rollcast.telemetry import grader_metrics
from rollcast.telemetry.exporter import Exporter

SOON = 10.0


class Gate:
    """Callers that take a turn and hold it until they are released."""

    def __init__(self, *, running: int, waiting: int) -> None:
        self.exporter = Exporter("test")
        self.turns = Turns(running=running, waiting=waiting, exporter=self.exporter)
        self.release = threading.Event()
        self.most = self._now = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(32)

    def call(self, wanted: threading.Event | None = None) -> Future[str]:
        return self._threads.submit(self._call, wanted)

    def _call(self, wanted: threading.Event | None) -> str:
        try:
            with self.turns.turn(lambda: wanted is None or wanted.is_set()):
                with self._lock:
                    self._now += 1
                    self.most = max(self.most, self._now)
                self.release.wait(SOON)
                with self._lock:
                    self._now -= 1
                return "graded"
        except NoTurn as none:
            return none.reason

    def shows(self, running: int, waiting: int) -> bool:
        value = self.exporter.registry.get_sample_value
        return (running, waiting) == tuple(
            value(metric.name, {"run": "test"})
            for metric in (grader_metrics.GRADER_RUNNING, grader_metrics.GRADER_WAITING)
        )

    def wait_for(self, running: int, waiting: int) -> None:
        until = time.monotonic() + SOON
        while not self.shows(running, waiting):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_so_many_run_so_many_wait_and_one_more_is_sent_away_at_once() -> None:
    gate = Gate(running=2, waiting=3)
    inside = [gate.call() for _ in range(5)]
    gate.wait_for(2, 3)
    assert gate.call().result(1.0) == "full"
    gate.release.set()
    assert [call.result(SOON) for call in inside] == ["graded"] * 5
    assert gate.most == 2
    gate.wait_for(0, 0)
    assert gate.call().result(SOON) == "graded"


def test_who_is_no_longer_wanted_loses_its_place_and_nobody_elses() -> None:
    gate = Gate(running=1, waiting=2)
    wanted = threading.Event()
    wanted.set()
    first = gate.call()
    gate.wait_for(1, 0)
    gone = gate.call(wanted)
    gate.wait_for(1, 1)
    stays = gate.call()
    gate.wait_for(1, 2)
    wanted.clear()
    assert gone.result(SOON) == "abandoned"
    gate.release.set()
    assert (first.result(SOON), stays.result(SOON)) == ("graded", "graded")


@pytest.mark.parametrize("waiting", [0, 4])
def test_closing_sends_away_who_waits_and_lets_finish_what_runs(waiting: int) -> None:
    gate = Gate(running=1, waiting=waiting)
    first = gate.call()
    gate.wait_for(1, 0)
    others = [gate.call() for _ in range(waiting)]
    gate.wait_for(1, waiting)
    gate.turns.close()
    assert [call.result(1.0) for call in others] == ["stopping"] * waiting
    assert not first.done()
    gate.release.set()
    assert first.result(SOON) == "graded"
    assert gate.call().result(1.0) == "stopping"
