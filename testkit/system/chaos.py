"""A run whose episodes lose their generators and whose environments misbehave; then its books are
read.

kill      SIGKILL in the middle of episodes, and a new one starts
freeze    SIGSTOP in the middle of episodes until it is fenced, then SIGCONT: it comes back as a new
          one
restart   SIGTERM in the middle of episodes, exit code 0, and a new one starts
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil
import yaml

from rollcast.rollouts.records import Claim, Purpose
from testkit.forked_programs import ForkedPrograms
from testkit.system import misbehaving_world
from testkit.system.audit import (
    check_every_episode_ended,
    check_every_task_once,
    check_nothing_was_left_behind,
    failures,
    failures_of_dead,
    tasks_of,
)
from testkit.system.calling_model import make_calling_model
from testkit.system.episode_audit import check_groups
from testkit.system.faults import count_joined, stop_holding_tasks
from testkit.system.harness import System, wait_for
from testkit.system.misbehaving_world import HANG_SECONDS, NAMED, SURVIVED
from testkit.system.recorder import Recorder

Fault = Literal["kill", "freeze", "restart"]
GENERATORS = ("g0", "g1")
ROLLOUTS = 4
LAG = 4
MAX_LENGTH = 256
WAIT_SECONDS = 240.0
"""Deadline of any single event, on a busy machine."""


def make_settings(folder: Path, mark: str) -> dict[str, Any]:
    """Every other row misbehaves, each in its own way.

    `mark`: digits by which leaks of this run are found.
    """
    make_calling_model(folder / "model", max_length=MAX_LENGTH)
    mischiefs = (*NAMED, *SURVIVED)
    rows = [
        {
            "prompt": f"go {n}",
            "mischief": mischiefs[n // 2 % len(mischiefs)] if n % 2 else "",
            "mark": mark,
        }
        # Rows of the data set
        for n in range(400)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    settings["model"] |= {"path": str(folder / "model"), "max_length": MAX_LENGTH}
    settings["tasks"]["dataset"]["path"] = str(folder / "rows.jsonl")
    (world,) = settings["tasks"]["environments"]
    world["code"] = f"{misbehaving_world.__file__}:MisbehavingWorld"
    settings["recipe"]["rollouts_per_prompt"] = ROLLOUTS
    settings["recipe"]["schedule"]["max_staleness"] = LAG
    return settings


class Chaos:
    """`run` it once in a fresh folder."""

    def __init__(self, folder: Path, programs: ForkedPrograms | None = None) -> None:
        self._mark = f"{time.time_ns() % 10**9:09}"
        folder.mkdir(parents=True, exist_ok=True)
        self._system = System(folder, make_settings(folder, self._mark), programs)
        self._fork_servers: set[psutil.Process] = set()
        self._held_counts: Counter[str] = Counter()

    def run(self, faults: Sequence[Fault]) -> dict[str, Any]:
        """Make the faults one after another, on alternating generators. Returns figures.

        Raises AssertionError if the books do not balance, a failure has no name, or something is
        left.
        """
        began = time.monotonic()
        with self._system as system:
            recorder = Recorder(system)
            recorder.start()
            system.start_trainer()
            for name in GENERATORS:
                system.start_generator(name)
            self._wait_until_both_work()
            for number, fault in enumerate(faults):
                self._make(fault, GENERATORS[(number + 1) % 2])
                self._wait_until_both_work()
            wait_for(
                self._has_seen_all,
                WAIT_SECONDS,
                "an episode given up for each kind of failure",
                every=1,
            )
            system.wait_step(system.last_step + LAG + 3, WAIT_SECONDS)
            counted = self._read_counts()
            for name in ("trainer", *GENERATORS):
                self._note_fork_servers(name)
                system.terminate(name)
            recorded = recorder.finish()
        lines = system.lines("tasks.jsonl")
        check_nothing_was_left_behind(lines, LAG)
        self._check_nothing_is_left()
        return {
            "faults": list(faults),
            "seconds": round(time.monotonic() - began, 1),
            "steps": system.last_step,
            "tasks_by_outcome": check_every_task_once(lines),
            "tasks_held_at_faults": dict(self._held_counts),
            "failures_of_tasks_given_up": failures_of_dead(lines),
            "tasks_redone": len(tasks_of(lines, "redone")),
            "episodes_by_end": check_every_episode_ended(lines, ROLLOUTS),
            "episodes_given_up": self._failures(),
            "audit_of_groups": dict(check_groups(recorded, lines)),
            "oldest_token_trained": max(
                int(age) for step in system.steps for age in step["staleness_tokens"]
            ),
            **counted,
        }

    def _wait_until_both_work(self) -> None:
        wait_for(
            lambda: self._system._all_alive() and count_joined(self._system) == 2,
            WAIT_SECONDS,
            "both generators",
        )
        self._system.wait_step(self._system.last_step + 2, WAIT_SECONDS)

    def _make(self, fault: Fault, name: str) -> None:
        system = self._system
        self._note_fork_servers(name)
        held_tasks = stop_holding_tasks(system, name)
        num_lines = len(system.lines("tasks.jsonl"))
        self._held_counts[fault] += len(held_tasks)
        if fault == "kill":
            system.kill(name)
            system.start_generator(name)
        elif fault == "freeze":
            wait_for(
                lambda: count_joined(system) == 1, WAIT_SECONDS, "the frozen generator's removal"
            )
            system.signal(name, signal.SIGCONT)
        else:
            system.stopped_services.add(name)
            system.processes[name].terminate()
            system.signal(name, signal.SIGCONT)
            code = system.processes[name].wait(WAIT_SECONDS)
            assert code == 0, f"{name} ended with {code}:\n{system.log(name)[-3000:]}"
            system.start_generator(name)
        wait_for(
            lambda: _train(held_tasks) <= self._gone_on(num_lines),
            WAIT_SECONDS,
            f"an end of what {name} held at {fault}",
        )

    def _gone_on(self, num_lines: int) -> set[int]:
        """Tasks that were settled or dispatched again, by the lines after the first `num_lines`."""
        lines = self._system.lines("tasks.jsonl")[num_lines:]
        return {
            task for line in lines if line["what"] != "dispatched" for task in line.get("tasks", ())
        }

    def _note_fork_servers(self, name: str) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._system.processes[name].pid).children():
                if "rollcast.environments.python_processes.fork_server" in child.cmdline():
                    self._fork_servers.add(child)

    def _failures(self) -> dict[str, int]:
        """By mischief; others by their sentence, with its numbers replaced."""
        failure_counts: Counter[str] = Counter()
        for sentence, count in failures(self._system.lines("tasks.jsonl")).items():
            kinds = [kind for kind, words in NAMED.items() if re.search(words, sentence)]
            failure_counts[kinds[0] if kinds else re.sub(r"\d+", "N", sentence)] += count
        return dict(failure_counts)

    def _has_seen_all(self) -> bool:
        return (
            self._system._all_alive()
            and set(NAMED) <= set(self._failures())
            and self._read_counts()["answers_cut"] > 0
        )

    def _read_counts(self) -> dict[str, Any]:
        """Counts of the trainer since its start, and of each generator since its last."""
        trainer = ("trainer",)
        episodes = self._totals("episodes", trainer, "end")
        return {
            "failures_by_stage": dict(self._totals("episode_failures", GENERATORS, "stage")),
            "episodes_given_up_counted": episodes.get("failed", 0.0),
            "episodes_begun_again": self._totals("episode_restarts", trainer).total(),
            "answers_cut": self._totals("episode_answers_cut", GENERATORS).total(),
            "tokens_discarded": self._totals("episode_tokens_discarded", GENERATORS).total(),
            "generators_fenced": self._totals("generators_fenced", trainer).total(),
        }

    def _totals(self, counter: str, services: Sequence[str], label: str = "") -> Counter[str]:
        """A counter of these services, by the values of a label."""
        totals: Counter[str] = Counter()
        for service in services:
            with suppress(httpx.HTTPError):
                for (name, labels), value in self._system.metrics(service).items():
                    if name == f"rollcast_{counter}_total":
                        totals[dict(labels).get(label, "")] += value  # type: ignore[assignment]
        return totals

    def _check_nothing_is_left(self) -> None:
        """No fork server, no process that an environment leaked, and no file that one wrote."""

        def find_leftovers() -> list[str]:
            fork_servers = [
                f"fork server {server.pid}" for server in self._fork_servers if server.is_running()
            ]
            sleeping = f"{HANG_SECONDS:.0f}.{self._mark}"
            leaked = [
                f"process {process.pid}"
                for process in psutil.process_iter(["cmdline"])
                if sleeping in (process.info["cmdline"] or ())
            ]
            files = Path("/tmp").glob(f"rollcast-environment-*/leaked-{self._mark}-*")
            return [*fork_servers, *leaked, *map(str, files)]

        # Deadline for processes and folders of a generator that has ended to be gone
        wait_for(lambda: not find_leftovers(), 60.0, f"the end of {find_leftovers()}")


def _train(claims: dict[int, Claim]) -> set[int]:
    return {task for task, claim in claims.items() if claim.purpose is Purpose.TRAIN}
