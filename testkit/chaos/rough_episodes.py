"""Episodes whose environments misbehave, and the books of their groups, failures and leftovers."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from testkit.system import misbehaving_world
from testkit.system.audit import check_every_episode_ended, failures
from testkit.system.calling_model import make_calling_model
from testkit.system.episode_audit import check_groups
from testkit.system.harness import System, wait_for
from testkit.system.misbehaving_world import HANG_SECONDS, NAMED, SURVIVED
from testkit.system.recorder import Recorder

ROLLOUTS = 4
MAX_LENGTH = 256


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
    return settings


class EpisodeBooks:
    """Groups as they come over Redis, fork servers, and what the episodes left on the machine."""

    def __init__(self, system: System, mark: str) -> None:
        self._system = system
        self._mark = mark
        self._fork_servers: set[psutil.Process] = set()
        self._recorder = Recorder(system)
        self._recorder.start()

    def note_fork_servers(self) -> None:
        """Before generators may end: their fork servers must end with them."""
        for process in self._system.processes.values():
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children():
                    if "rollcast.environments.python_processes.fork_server" in child.cmdline():
                        self._fork_servers.add(child)

    def failures(self) -> dict[str, int]:
        """By mischief; others by their sentence, with its numbers replaced."""
        failure_counts: Counter[str] = Counter()
        for sentence, count in failures(self._system.lines("tasks.jsonl")).items():
            kinds = [kind for kind, words in NAMED.items() if re.search(words, sentence)]
            failure_counts[kinds[0] if kinds else re.sub(r"\d+", "N", sentence)] += count
        return dict(failure_counts)

    def kinds_not_seen(self) -> list[str]:
        """Failures that no episode was given up for so far."""
        return sorted(set(NAMED) - set(self.failures()))

    def finish(self) -> dict[str, Any]:
        """After the end of every process. Raises AssertionError if an episode is not whole or has
        no reason, or if anything is left on the machine.
        """
        recorded = self._recorder.finish()
        lines = self._system.lines("tasks.jsonl")
        # Deadline for processes and folders of a generator that has ended to be gone
        wait_for(lambda: not self._find_leftovers(), 60.0, f"the end of {self._find_leftovers()}")
        return {
            "episodes_by_end": check_every_episode_ended(lines, ROLLOUTS),
            "episodes_given_up": self.failures(),
            "audit_of_groups": dict(check_groups(recorded, lines)),
            "kinds_not_seen": self.kinds_not_seen(),
        }

    def _find_leftovers(self) -> list[str]:
        """Fork servers, processes that an environment leaked, and files that one wrote."""
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
