"""The sandbox on published problems and on hostile programs; writes results/sandbox.json.

    reference solutions   HumanEval's and MBPP+'s own must pass
    mutants               one change each: how many fail, and which survive
    throughput            gradings of MBPP+ solutions a second and core, compared with one fresh
                          Python for each
    hostile programs      over 200, aimed at real listeners, files and processes

ROLLCAST_SHARED_DATA names the folder with the published problems; without it that part is left out,
and says so.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.sandbox.mutants import mutants
from benchmarks.sandbox.problems import Problem, read_problems
from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade
from testkit.record import write_result
from testkit.tasks.hostile_programs import Hostile, hostile_programs
from testkit.tasks.hostile_surroundings import surroundings

SETTINGS = Grading(processes=2, deadline_seconds=90.0, seconds_per_test=60.0)
"""A few of MBPP+'s own solutions take up to a minute: the question is whether they pass, not
whether they are fast."""
MUTANTS_PER_PROBLEM = 2
MUTANT_SECONDS = 3.0
ORDINARY_SECONDS = 1.0
"""A solution that computes longer than this measures itself, not the sandbox."""
FLOOR = 20.0
"""Gradings a second and core that are asked for."""


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def grade_all(
    sandbox: Sandbox, items: list[tuple[str, str, str]], seconds: float | None = None
) -> list[tuple[str, Grade, float]]:
    """items: (name, program, reference). Returns (name, grade, wall seconds)."""

    def one(item: tuple[str, str, str]) -> tuple[str, Grade, float]:
        started = time.perf_counter()
        grade = sandbox.grade("code", fenced(item[1]), item[2], deadline_seconds=seconds)
        return item[0], grade, time.perf_counter() - started

    with ThreadPoolExecutor(SETTINGS.processes) as threads:
        return list(threads.map(one, items))


def reference_solutions(
    sandbox: Sandbox, problems: dict[str, list[Problem]]
) -> tuple[dict[str, Any], set[str]]:
    """Figures, and the names of the problems whose solution passes within ORDINARY_SECONDS."""
    figures: dict[str, Any] = {}
    ordinary: set[str] = set()
    for name, some in problems.items():
        graded = grade_all(sandbox, [(item.name, item.solution, item.reference) for item in some])
        failed = {
            item: f"{grade.status} {grade.reason}".strip()
            for item, grade, _ in graded
            if grade.status != "ok"
        }
        by_name = {item.name: item for item in some}
        ordinary |= {
            item
            for item, grade, seconds in graded
            if grade.status == "ok" and seconds < ORDINARY_SECONDS
        }
        figures[name] = {
            "problems": len(some),
            "passed": len(some) - len(failed),
            "not_passed": {
                item: {"sandbox": how, "plain_python": plain(by_name[item])}
                for item, how in failed.items()
            },
            "slower_than_the_default_deadline": sorted(
                item for item, _, seconds in graded if seconds > Grading().longest_seconds
            ),
        }
    return figures, ordinary


def plain(problem: Problem) -> str:
    """Run the solution and tests in one plain Python process with the same address space: what the
    sandbox adds.
    """
    limit = SETTINGS.memory_mib << 20
    ended = subprocess.run(
        [sys.executable, "-"],
        input=f"{problem.solution}\n{problem.tests}",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    return (
        "passes"
        if ended.returncode == 0
        else (ended.stderr.strip().splitlines() or ["killed"])[-1][:100]
    )


def mutated_solutions(sandbox: Sandbox, problems: dict[str, list[Problem]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, some in problems.items():
        made = [
            (problem.name, mutant, problem.reference)
            for problem in some
            for mutant in mutants(
                problem.solution, MUTANTS_PER_PROBLEM, random.Random(problem.name)
            )
        ]
        graded = grade_all(sandbox, made, MUTANT_SECONDS)
        statuses = Counter(grade.status for _, grade, _ in graded)
        survivors = [
            {"problem": item, "program": program.strip()[-600:]}
            for (item, program, _), (_, grade, _) in zip(made, graded, strict=True)
            if grade.status == "ok"
        ]
        figures[name] = {
            "mutants": len(made),
            "statuses": dict(statuses),
            "share_not_passed": round(1 - statuses["ok"] / len(made), 4),
            "survivors": survivors,
        }
    return figures


def throughput(sandbox: Sandbox, some: list[Problem], ordinary: set[str]) -> dict[str, Any]:
    """Gradings a second of ordinary problems' solutions, one grading on each core at a time; then a
    fresh process for each."""
    quick = [(item.name, item.solution, item.reference) for item in some if item.name in ordinary]
    server = psutil.Process(sandbox._servers["code"].process.pid)
    started, before = time.perf_counter(), server.cpu_times()
    graded = grade_all(sandbox, quick)
    wall, after = time.perf_counter() - started, server.cpu_times()
    cpu = sum(after[:4]) - sum(before[:4])
    by_name = {item.name: item for item in some}
    fresh_started = time.perf_counter()
    with ThreadPoolExecutor(SETTINGS.processes) as threads:
        passed = sum(threads.map(lambda item: plain(by_name[item[0]]) == "passes", quick))
    fresh = time.perf_counter() - fresh_started
    cores = min(SETTINGS.processes, len(os.sched_getaffinity(0)))
    return {
        "gradings": len(quick),
        "left_out_as_slow": len(some) - len(quick),
        "cores": cores,
        "gradings_per_second_and_core": round(len(quick) / wall / cores, 1),
        "gradings_per_cpu_second": round(len(quick) / cpu, 1),
        "median_milliseconds": round(
            1000 * statistics.median(seconds for _, _, seconds in graded), 1
        ),
        "fresh_python_per_second_and_core": round(passed / fresh / cores, 1),
        "asked_for": FLOOR,
    }


def hostile() -> dict[str, Any]:
    sandbox = Sandbox(Grading(memory_mib=256))
    good = json.dumps({"kind": "tests", "tests": "assert add(1, 2) == 3"})
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as around:
        sandbox.grade("code", fenced("pass"), good, deadline_seconds=60.0)
        server = sandbox._servers["code"].process.pid

        def one(program: Hostile) -> tuple[str, Grade, Grade]:
            wanted = repr(around.secret) if program.family in ("reading", "forged") else "2"
            reference = json.dumps({"kind": "tests", "tests": f"assert f(1) == {wanted}"})
            grade = sandbox.grade("code", fenced(program.source), reference, deadline_seconds=1.0)
            return (
                program.family,
                grade,
                sandbox.grade("code", fenced("def add(a, b): return a + b"), good),
            )

        programs = hostile_programs(around.filled)
        with ThreadPoolExecutor(4) as threads:
            graded = list(threads.map(one, programs))
        statuses: dict[str, Counter[str]] = {}
        for family, grade, _ in graded:
            statuses.setdefault(family, Counter())[grade.status] += 1
        figures = {
            "programs": len(programs),
            "statuses_by_family": {family: dict(counted) for family, counted in statuses.items()},
            "forged_or_read": sum(
                grade.status == "ok"
                for family, grade, _ in graded
                if family in ("reading", "forged")
            ),
            "grader_errors": sum(grade.status == "error" for _, grade, _ in graded),
            "good_program_after_it_graded_right": sum(
                after.status == "ok" for _, _, after in graded
            ),
            "touched": around.find_changes(),
            "fork_server_survived": sandbox._servers["code"].process.pid == server,
            "processes_left": len(psutil.Process(server).children(recursive=True)),
        }
    sandbox.close()
    return figures


def contained(figures: dict[str, Any]) -> bool:
    return (
        figures["programs"] == figures["good_program_after_it_graded_right"]
        and figures["fork_server_survived"]
        and not (
            figures["forged_or_read"]
            or figures["grader_errors"]
            or figures["touched"]
            or figures["processes_left"]
        )
    )


def main() -> int:
    figures: dict[str, Any] = {"hostile": hostile()}
    right = contained(figures["hostile"])
    folder = os.environ.get("ROLLCAST_SHARED_DATA")
    problems = read_problems(Path(folder)) if folder else {}
    if problems:
        sandbox = Sandbox(SETTINGS)
        figures["reference_solutions"], ordinary = reference_solutions(sandbox, problems)
        figures["throughput"] = throughput(sandbox, problems["mbpp-plus"], ordinary)
        figures["mutants"] = mutated_solutions(sandbox, problems)
        sandbox.close()
        right &= figures["throughput"]["gradings_per_second_and_core"] >= FLOOR
    else:
        print(
            "ROLLCAST_SHARED_DATA names no folder with HumanEval and MBPP+: their part is left out",
            file=sys.stderr,
        )
    path = write_result("sandbox", figures)
    print(json.dumps(figures, indent=1))
    print(f"written to {path}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
