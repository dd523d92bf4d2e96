"""How the tests share a machine: what is collected, what runs in one process, and what starts
first.

    make near      the tests nearest to what changed
    make test      --proofs core: what any change may break, then the proofs that are due
    make proofs    --proofs NAME,...: the test files of proofs (testkit/suite/proof_table.yaml)

A call of pytest by hand collects both. Three processes for two cores: whole systems wait for their
parts to start and to end, and tests of services for their deadlines. So a test waits generously,
and does not say that something was quick. How long an example takes never fails a test: machines
are shared.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from rollcast.tasks.sandbox import protections
from testkit.forked_programs import SERVICES, SYSTEM, ForkedPrograms
from testkit.suite.durations import load_durations
from testkit.suite.measurement import Deadline, Measurements, ProcessorTime
from testkit.suite.selection import CORE, files_to_ignore, group_of_file, seconds_of_groups

if TYPE_CHECKING:
    from rollcast.trainer.learner.ranks import Ranks

# As many processes as cores, or more: one thread each. Before any test imports torch, which reads
# it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Helm renders in a test process and is written in Go, whose collector runs for a third of a
# rendering by default.
os.environ.setdefault("GOGC", "400")

ROOT = Path(__file__).parents[1]
CORE_EXAMPLES = 25
"""Examples of a property in the core tests; a test that needs more says so. Proofs run hypothesis'
own hundred."""
settings.register_profile("whole", deadline=None)
settings.register_profile(CORE, deadline=None, max_examples=CORE_EXAMPLES)
settings.load_profile("whole")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proofs",
        metavar="NAMES",
        help="core: leave all proofs out; else leave out those not named",
    )
    parser.addoption(
        "--suite-report", metavar="FILE", type=Path, help="write seconds and failures of each file"
    )
    parser.addoption(
        "--keep-order",
        action="store_true",
        help="run the files in the order in which they are named",
    )
    parser.addoption(
        "--stop-at",
        metavar="EPOCH",
        type=float,
        default=float("inf"),
        help="begin no test afterwards",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("proofs") == CORE:
        settings.load_profile(CORE)
    config.pluginmanager.register(ProcessorTime())
    config.pluginmanager.register(StartedPrograms())
    config.pluginmanager.register(Deadline(config.getoption("stop_at")))
    if not hasattr(config, "workerinput"):  # not a process of xdist
        config.pluginmanager.register(
            Measurements(config.getoption("suite_report"), config.getoption("stop_at"))
        )
    names = config.getoption("proofs")
    config.stash[IGNORED] = (
        frozenset(ROOT / file for file in files_to_ignore(names)) if names else frozenset()
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Without searches for garbage: they take a fifth of the collection's time and find none. What
    it made stays until the process ends, so that later searches leave it out.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class StartedPrograms:
    """Fails the collection of a test module that starts a program or imports vLLM when it is
    imported.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        start = subprocess.Popen.__init__
        had_vllm = "vllm" in sys.modules
        faults: list[str] = []

        def record_start(popen: Any, *arguments: Any, **options: Any) -> None:
            faults.append(f"{collector.nodeid} starts {arguments}")
            start(popen, *arguments, **options)

        subprocess.Popen.__init__ = record_start  # type: ignore[method-assign, assignment]
        try:
            report = yield
        finally:
            subprocess.Popen.__init__ = start  # type: ignore[method-assign]
        if "vllm" in sys.modules and not had_vllm:
            faults.append(f"{collector.nodeid} imports vllm")
        if faults:
            report.outcome = "failed"
            report.longrepr = "\n".join(faults)
        return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Asked when a test runs and not when it is collected: the answer takes a program."""
    if item.get_closest_marker("protections") and (lacking := protections.missing()):
        pytest.skip(f"this machine lacks {' and '.join(lacking)}")


IGNORED = pytest.StashKey[frozenset[Path]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path in config.stash[IGNORED] else None


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """Hands out whole groups of tests (testkit/suite/selection.py)."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of_file(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    config.option.loadscopereorder = (
        False  # the order is that of the durations, not by number of tests
    )
    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, unless a call has its own order."""
    if hasattr(config, "workerinput") and not config.getoption("keep_order"):  # a process of xdist
        seconds = seconds_of_groups({file_of(item) for item in items}, load_durations())
        items.sort(
            key=lambda item: (
                -seconds[group_of_file(file_of(item))],
                group_of_file(file_of(item)),
                file_of(item),
            )
        )


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """What the programs of whole systems are forked of, once a test process has need of one."""
    with ForkedPrograms(tmp_path_factory.mktemp("forked"), SYSTEM) as programs:
        yield programs


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """This process as the only rank, until the file's end: another file may join ranks of its own,
    and a process is in one group at a time.
    """
    from rollcast.trainer.learner.ranks import join_ranks

    joined = join_ranks(timeout_seconds=60, threads=1)
    yield joined
    joined.leave()


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """The same for services without torch."""
    with ForkedPrograms(tmp_path_factory.mktemp("services"), SERVICES) as services:
        yield services
