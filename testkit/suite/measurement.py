"""Seconds of every test file, by wall clock and by processor, and the outcomes of its tests.

ProcessorTime    in each test process: adds the seconds of a test to its last report
Deadline         in each test process: lets no further test begin after a time
Measurements     in the process that pytest was called in: adds the reports up, file by file, and
                 prints the shares
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

PROPERTY = "seconds"
"""Name of the property of a report that carries a test's seconds."""
MOST_EXPENSIVE_FILES = 10


@dataclass
class FileSeconds:
    """What the tests of one file took and how they ended."""

    tests: int = 0
    wall_seconds: float = 0.0
    processor_seconds: float = 0.0
    """The test process and the children that it waited for; processes that outlive a test count
    elsewhere."""
    failed: int = 0
    skipped: int = 0


class ProcessorTime:
    """Measures each test from the start of its fixtures to their end."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self._wall_start = time.monotonic()
        self._processor_start = _processor_seconds()
        yield

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield
        wall_seconds = time.monotonic() - self._wall_start
        item.user_properties.append(
            (PROPERTY, (wall_seconds, _processor_seconds() - self._processor_start))
        )


class Deadline:
    """Lets no further test of this process begin after a time, in seconds of the epoch."""

    def __init__(self, stop_at: float) -> None:
        self._stop_at = stop_at

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.time() > self._stop_at:
            item.session.shouldstop = "the time is over"


class Measurements:
    """Adds the reports up. Writes them as JSON if a file is named.

    stop_at: seconds of the epoch after which `Deadline` began no test.
    """

    def __init__(self, report: Path | None, stop_at: float) -> None:
        self._report = report
        self._stop_at = stop_at
        self._files: dict[str, FileSeconds] = defaultdict(FileSeconds)
        self._failed_tests: list[str] = []
        self._start = time.monotonic()
        self._machine_start = _machine_seconds()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed_tests.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = self._files[report.nodeid.partition("::")[0]]
        if report.failed:
            seconds.failed += 1
            self._failed_tests.append(report.nodeid)
        if report.skipped:
            seconds.skipped += 1
        if report.when == "teardown":
            seconds.tests += 1
            measured: Any = dict(report.user_properties).get(PROPERTY, (0.0, 0.0))
            seconds.wall_seconds += measured[0]
            seconds.processor_seconds += measured[1]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        wall_seconds = time.monotonic() - self._start
        machine_seconds = _machine_seconds() - self._machine_start
        if self._report is not None:
            record = {
                "wall_seconds": round(wall_seconds, 1),
                "machine_processor_seconds": round(machine_seconds, 1),
                "stopped": time.time() > self._stop_at,
                "failed_tests": sorted(set(self._failed_tests)),
                "files": {file: asdict(seconds) for file, seconds in sorted(self._files.items())},
            }
            self._report.parent.mkdir(parents=True, exist_ok=True)
            self._report.write_text(json.dumps(record, indent=1) + "\n")
        if len(self._files) > MOST_EXPENSIVE_FILES:
            terminalreporter.section("time")
            for line in [*expensive_files(self._files), *shares_of_rooms(self._files)]:
                terminalreporter.write_line(line)
            terminalreporter.write_line(
                f"{wall_seconds:.0f} s; {machine_seconds:.0f} s of processor time of the whole "
                "machine meanwhile"
            )


def expensive_files(files: dict[str, FileSeconds]) -> list[str]:
    """The files that took longest, the longest first."""
    longest = sorted(files.items(), key=lambda item: -item[1].wall_seconds)[:MOST_EXPENSIVE_FILES]
    return [
        f"{seconds.wall_seconds:7.1f} s  {seconds.tests:4} tests  {file}"
        for file, seconds in longest
    ]


def shares_of_rooms(files: dict[str, FileSeconds]) -> list[str]:
    """Seconds of tests by folder of tests/, and their share of the whole, the largest first."""
    rooms: dict[str, float] = defaultdict(float)
    for file, seconds in files.items():
        rooms[room_of_test(file)] += seconds.wall_seconds
    total_seconds = sum(rooms.values()) or 1.0
    return [
        f"{seconds:7.1f} s  {seconds / total_seconds:4.0%}  {room}"
        for room, seconds in sorted(rooms.items(), key=lambda item: -item[1])
    ]


def room_of_test(file: str) -> str:
    """`tests/chart` of tests/chart/test_check.py; `tests` of a file directly there."""
    parts = file.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def _processor_seconds() -> float:
    """Processor time of this process and the children that it waited for."""
    return sum(os.times()[:4])


def _machine_seconds() -> float:
    """Processor seconds that the machine was busy since it started."""
    times = psutil.cpu_times()
    guest_is_in_user = 8  # fields after the eighth are parts of the first two
    return sum(times[:guest_is_in_user]) - times.idle - times.iowait
