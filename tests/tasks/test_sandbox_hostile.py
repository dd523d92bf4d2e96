"""Programs that mean harm, graded for real: those that reach each guard of the sandbox. None gets
through.

All of them: test_all_hostile_programs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.tasks.hostile_programs import FAMILIES, hostile_programs
from tests.tasks.hostile_gradings import (
    NEEDS_PROTECTIONS,
    Gradings,
    assert_harms_without_sandbox,
    gradings,
)

pytestmark = pytest.mark.timeout(300)
GOOD_EVERY = 6
"""Programs after which a good one is graded."""
GUARDED = {
    # Processor time, wall time, C code that no signal interrupts, signals that are ignored, endless
    # output.
    "endless": {0, 1, 3, 6, 11, 20, 21},
    # Address space by Python, mmap, numpy, malloc and integers; descriptors.
    "memory": {0, 1, 4, 5, 9, 11, 20},
    # fork, spawn, exec and threads by Python; vfork, fork, clone, clone3, execve and execveat by
    # number.
    "processes": {0, 5, 8, 9, 14, 16, 17, 18, 19, 20, 21, 22},
    # Environment and memory of this process, its parent, a victim and the grader; files by open,
    # openat, openat2, handles, links, folders and descriptors; ptrace, pidfd, keys, io_uring, bpf,
    # perf, userfaultfd.
    "reading": {
        0,
        2,
        3,
        5,
        8,
        10,
        23,
        24,
        25,
        26,
        27,
        28,
        31,
        32,
        33,
        34,
        39,
        40,
        42,
        43,
        44,
        45,
        46,
        47,
        49,
        50,
        51,
    }
    | {52, 53, 54, 55, 56, 57, 58},
    # Each call that makes, changes, moves or removes an entry, mounts, or writes through a
    # descriptor.
    "writing": {
        0,
        3,
        5,
        6,
        7,
        8,
        10,
        11,
        12,
        14,
        16,
        17,
        18,
        19,
        20,
        21,
        22,
        32,
        33,
        34,
        35,
        36,
        37,
        40,
        42,
        43,
        44,
    }
    | {45, 46, 47, 48, 49},
    # TCP, UDP, Unix sockets with a name and without, raw ones, and the descriptors that a program
    # has.
    "network": {0, 4, 6, 7, 16, 18, 19, 20, 21, 22, 23},
    # Signals to parent, victim, grader and group by each call; limits, priorities, groups and cores
    # of others.
    "signals": {0, 5, 8, 9, 11, 14, 15, 16, 17, 18, 19, 20, 22, 24, 25, 27, 28, 29, 30, 32, 33, 34},
    # Values that equal everything, ends before an answer, and answers written past the judge.
    "forged": {0, 2, 5, 6, 11, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 28, 29, 30, 31},
}
"""Family -> numbers of programs: one for each way past a guard."""
UNGUARDED = [("reading", 10), ("writing", 34), ("network", 7), ("processes", 21), ("signals", 14)]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gradings]:
    folder = tmp_path_factory.mktemp("around")
    with gradings(folder, lambda item: item.number in GUARDED[item.family], GOOD_EVERY) as made:
        yield made


def test_there_are_at_least_200_and_each_is_a_program() -> None:
    programs = hostile_programs({"victim": 1, "grader": 1, "port": 1, "udp": 1})
    assert len(programs) >= 200
    for program in programs:
        compile(program.source, program.name, "exec")


@NEEDS_PROTECTIONS
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hostile_program_is_contained(graded: Gradings, family: str) -> None:
    assert graded.not_contained(family) == []


@NEEDS_PROTECTIONS
def test_good_programs_among_them_are_graded_right(graded: Gradings) -> None:
    assert graded.good_statuses == {"ok"}


@NEEDS_PROTECTIONS
def test_nothing_is_left_of_them(graded: Gradings) -> None:
    graded.assert_nothing_is_left()


@pytest.mark.parametrize(("family", "number"), UNGUARDED)
def test_without_the_sandbox_the_same_program_gets_through(
    tmp_path: Path, family: str, number: int
) -> None:
    assert_harms_without_sandbox(tmp_path, family, number)
