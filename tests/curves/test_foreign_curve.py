"""Runs of other frameworks in a Prometheus: short and long ones, read at once and piece
by piece.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rollcast.config.curve_sources import CurveQueries
from rollcast.curves.evaluations import MAX_EVALUATIONS, CurvePoint
from rollcast.curves.sources.foreign_curve import ForeignCurve
from rollcast.local.ports import free_port
from rollcast.telemetry.prometheus_reader import Prometheus, Series, SourceAway
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, PROMTOOL, prometheus

NOW = 1_800_000_007.0
HOUR, DAY = 3600.0, 86_400.0
QUERIES = CurveQueries(run="theirs", pass_rate="acc", compute="hours")


class Stored(Prometheus):
    """What a Prometheus that scrapes every 15 s answers of a run that began at `begin` and is
    evaluated every `every` seconds: a value lasts 5 minutes after its last scrape, at most 11,000
    instants are answered."""

    def __init__(self, begin: float, end: float, every: float, kept_from: float = 0.0) -> None:
        self.begin, self.end, self.every, self.kept_from = begin, end, every, kept_from
        self.asked: list[int] = []
        self.fails_after = math.inf

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        if len(self.asked) >= self.fails_after:
            raise SourceAway("away")
        count = math.floor((end - start) / step) + 1
        assert count <= 11_000
        self.asked.append(count)
        times = [start + place * step for place in range(count)]
        known = [at for at in times if max(self.begin, self.kept_from) <= at <= self.end + 300]
        evaluations = [math.floor((min(at, self.end) - self.begin) / self.every) for at in known]
        values = tuple(1 - 1 / (n + 2) if expression == "acc" else float(n) for n in evaluations)
        return [Series({}, tuple(known), values)] if known else []


def everything(stored: Prometheus, now: float = NOW) -> list[CurvePoint]:
    return ForeignCurve(stored, QUERIES).read(now).evaluations


@NEEDS_PROMETHEUS
@pytest.mark.skipif(
    PROMTOOL is None,
    reason="needs promtool to write samples of the past (Debian package prometheus)",
)
def test_a_run_of_an_hour_is_seen_scrape_by_scrape(tmp_path: Path) -> None:
    """Two days ago, evaluated every minute, scraped every 15 seconds; asked about with the default
    look-back.
    """
    began = time.time() // 60 * 60 - 2 * DAY
    exported: dict[str, Callable[[int], float]] = {
        "acc": lambda n: 0.2 + 0.01 * n,
        "hours": lambda n: n / 10,
    }
    lines = []
    for name, value in exported.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name} {value(place // 4)!r} {began + 15 * place:.0f}" for place in range(240)]
    (tmp_path / "past.om").write_text("\n".join([*lines, "# EOF", ""]))
    assert PROMTOOL is not None
    command = [
        PROMTOOL,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(tmp_path / "past.om"),
        str(tmp_path / "data"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port("127.0.0.1")
    with prometheus(tmp_path, port, []):
        server = Prometheus(f"http://127.0.0.1:{port}")
        found = everything(server, time.time())
        server.close()
    assert [item.compute for item in found] == pytest.approx([n / 10 for n in range(60)])
    assert [item.pass_rate for item in found] == pytest.approx([0.2 + 0.01 * n for n in range(60)])
    assert [item.at for item in found] == pytest.approx([began + 60 * n for n in range(60)], abs=15)


def test_piece_by_piece_it_is_the_same_curve_and_costs_little() -> None:
    stored = Stored(begin=NOW - 10 * HOUR - 5, end=NOW, every=240)
    curve = ForeignCurve(stored, QUERIES)
    found = curve.read(NOW - 6 * HOUR).evaluations
    del stored.asked[:]
    for look in range(1, 6 * 60 + 1):
        found += curve.read(NOW - 6 * HOUR + 60 * look).evaluations
    assert found == everything(Stored(begin=NOW - 10 * HOUR - 5, end=NOW, every=240))
    assert len(found) == 150
    assert max(stored.asked) <= 5


def test_a_look_that_was_broken_off_is_made_good_by_the_next_one() -> None:
    stored = Stored(begin=NOW - 60 * HOUR, end=NOW, every=600)
    curve = ForeignCurve(stored, QUERIES)
    stored.fails_after = 4
    with pytest.raises(SourceAway):
        curve.read(NOW)
    stored.fails_after = math.inf
    assert curve.read(NOW).evaluations == everything(stored)


def test_a_long_run_costs_a_bounded_number_of_instants_and_keeps_its_evaluations() -> None:
    stored = Stored(begin=NOW - 29 * DAY, end=NOW, every=300)
    found = everything(stored)
    assert len(found) == 29 * 288
    assert sum(stored.asked) < 2 * 200_000 + 11_000
    assert len(stored.asked) < 50


def test_a_series_that_changes_at_every_scrape_does_not_fill_the_log_in_a_week() -> None:
    found = everything(Stored(begin=NOW - 7 * DAY, end=NOW, every=15))
    assert len(found) < MAX_EVALUATIONS
    gaps = [late.at - early.at for early, late in pairwise(found)]
    assert (min(gaps), max(gaps)) == (15, 270)


def test_what_prometheus_forgets_changes_no_instant_of_the_rest() -> None:
    """A forecaster that starts again finds the same evaluations where Prometheus keeps half of the
    run only.
    """
    whole = everything(Stored(begin=NOW - 20 * DAY, end=NOW, every=600))
    rest = everything(Stored(begin=NOW - 20 * DAY, end=NOW, every=600, kept_from=NOW - 10 * DAY))
    assert rest[1:] == [item for item in whole if item.at > rest[0].at]


def test_what_was_measured_before_the_look_back_is_not_dated() -> None:
    found = everything(Stored(begin=NOW - 40 * DAY, end=NOW, every=2 * HOUR))
    assert len(found) == 30 * 12
    assert found[0].at > NOW - 30 * DAY
