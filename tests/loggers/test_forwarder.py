"""What the run folder holds arrives once and in order, whatever the destination does; what cannot
is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rollcast.loggers import forwarder
from rollcast.loggers.entries import Entry, RefusedError
from rollcast.loggers.forwarder import Forwarder
from rollcast.runfolder import files
from rollcast.runfolder.records import StepRecord, as_json
from rollcast.runfolder.writing import append_line, make_folder
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from tests.loggers.told_run import NUM_RECORDS, PASS_RATES, REWARDS, STEPS, write_run, write_steps

WAIT_SECONDS = 60.0


class Notebook:
    """A destination that keeps what it is told, and does as it is asked."""

    def __init__(
        self, told: list[Entry], obey: Callable[[Sequence[Entry]], None] = lambda _: None
    ) -> None:
        self.told = told
        self.run_id: str | None = None
        self._obey = obey
        self.closed = False

    def open(self) -> None:
        self.run_id = "n-1"

    def write(self, entries: Sequence[Entry]) -> None:
        self._obey(entries)
        self.told.extend(entries)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "READ_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(forwarder, "MAX_BACKOFF_SECONDS", 0.02)


def forward(folder: Path, notebook: Notebook, exporter: Exporter | None = None) -> list[str | None]:
    """Tell all there is; the ids under which the run was asked for."""
    ids: list[str | None] = []

    def make(run_id: str | None) -> Notebook:
        ids.append(run_id)
        return notebook

    thread = Forwarder("notebook", folder, make, exporter or Exporter("r"))
    thread.start()
    thread.stop()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert notebook.closed
    return ids


def counted(exporter: Exporter, name: str) -> dict[str, float]:
    """By reason, or "" where there is none."""
    samples = parse_page(exporter.render().decode())
    return {
        sample.labels.get("reason", ""): sample.value for sample in samples if sample.name == name
    }


def test_every_record_arrives_once_in_the_order_of_time(tmp_path: Path) -> None:
    write_run(tmp_path)
    told: list[Entry] = []
    exporter = Exporter("r")
    assert forward(tmp_path, Notebook(told), exporter) == [None]
    assert [entry.at for entry in told] == sorted(entry.at for entry in told)
    assert len(told) == NUM_RECORDS
    assert counted(exporter, "rollcast_logger_records_total") == {"": NUM_RECORDS}
    numbers = {(name, entry.step): value for entry in told for name, value in entry.numbers.items()}
    assert {step: numbers["train/reward_mean", step] for step in STEPS} == REWARDS
    assert {step: numbers["eval/pass_rate", step] for step in PASS_RATES} == PASS_RATES
    assert numbers["train/staleness_mean", 3] == pytest.approx(1.5)
    assert numbers["forecast/asymptote_median", 8] == 0.6
    assert [entry.texts["forecast/verdict"] for entry in told if entry.texts] == ["too_early"] * 2


def test_the_next_process_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    write_run(tmp_path)
    forward(tmp_path, Notebook([]))
    write_steps(tmp_path, range(7, 9))  # again, after a restart from the checkpoint of step 6
    told: list[Entry] = []
    assert forward(tmp_path, Notebook(told)) == ["n-1"]
    assert [(entry.step, entry.is_repeated) for entry in told] == [(7, True), (8, False)]


def test_a_destination_that_is_away_gets_everything_later(tmp_path: Path) -> None:
    write_run(tmp_path)
    failures = [ConnectionError("nobody answers"), TimeoutError()]

    def obey(_: Sequence[Entry]) -> None:
        if failures:
            raise failures.pop()

    told: list[Entry] = []
    exporter = Exporter("r")
    forward(tmp_path, Notebook(told, obey), exporter)
    assert len(told) == NUM_RECORDS
    assert counted(exporter, "rollcast_logger_up") == {"": 1.0}
    assert "refused" not in counted(exporter, "rollcast_logger_dropped_total")


def test_what_is_refused_or_torn_or_no_number_is_left_out_and_counted(tmp_path: Path) -> None:
    make_folder(tmp_path)
    write_steps(tmp_path)
    with (tmp_path / files.STEPS).open("a") as file:
        file.write('{"step": "nine"}\n')
    append_line(
        tmp_path / files.STEPS,
        as_json(StepRecord(step=10, at=2e9, loss=float("nan"), reward_mean=0.5)),
    )

    def obey(entries: Sequence[Entry]) -> None:
        if any(entry.step == 3 for entry in entries):
            raise RefusedError("no 3")

    told: list[Entry] = []
    exporter = Exporter("r")
    forward(tmp_path, Notebook(told, obey), exporter)
    assert [entry.step for entry in told] == [1, 2, 4, 5, 6, 7, 8, 10]
    assert "train/loss" not in told[-1].numbers
    assert counted(exporter, "rollcast_logger_dropped_total") == {
        "refused": 1.0,
        "unreadable": 1.0,
        "not_finite": 1.0,
    }


def test_one_that_hangs_keeps_neither_the_other_nor_the_end(tmp_path: Path) -> None:
    write_run(tmp_path)
    never = threading.Event()
    told: list[Entry] = []
    hanging = Notebook([], lambda _: (never.wait(), None)[1])
    threads = [
        Forwarder(name, tmp_path, lambda _, made=made: made, Exporter("r"))  # type: ignore[misc]
        for name, made in (("hangs", hanging), ("works", Notebook(told)))
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(told) < NUM_RECORDS and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(told) == NUM_RECORDS
    assert threads[0].daemon
    assert threads[0].is_alive()
    never.set()
    for thread in threads:
        thread.stop()
        thread.join(WAIT_SECONDS)
