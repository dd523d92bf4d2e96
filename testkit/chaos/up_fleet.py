"""A run that `rollcast up` keeps alive; `up` itself is started again with `--resume`."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import yaml

from testkit.chaos.fleet import ORDERLY_CODES, Fleet, find_engine
from testkit.forked_programs import ForkedPrograms
from testkit.system.command import read_output, rollcast, services

UP = "up"
SERVICES = {"g0": "generator-0", "g1": "generator-1", "trainer 0": "trainer None"}
"""Targets of faults whose services have other names here; a single rank has no number."""


class UpFleet(Fleet):
    """See `Fleet`. Its services end and start under `up`, which says so in its own output."""

    def __init__(self, folder: Path, programs: ForkedPrograms) -> None:
        super().__init__("up", folder, programs)
        self._programs = programs
        self._command = ExitStack()
        given = {key: value for key, value in self.system.settings.items() if key != "redis"}
        given |= {"rpc": {}, "local": {"generators": 2, "trainer_ranks": 1}}
        (folder / "run.yaml").write_text(yaml.safe_dump(given))
        self._said_bytes = 0

    def __enter__(self) -> UpFleet:
        self._start_up()
        try:
            self.wait(lambda: self.works(2), "the first steps, with both generators")
        except BaseException:
            self._command.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._command.close()

    def _start_up(self) -> None:
        self._command.close()
        resume = ["--resume"] if self.run_folder.exists() else []
        # Its services of before are no children of this one
        (self.folder / "started").unlink(missing_ok=True)
        self.system.processes[UP] = self._command.enter_context(
            rollcast(self.folder, "up", "--config", "run.yaml", *resume, programs=self._programs)
        )

    def tick(self) -> None:
        """Start `up` again if it has ended."""
        code = self.system.processes[UP].poll()
        if code is None:
            return
        text = read_output(self.folder)[self._said_bytes :]
        self._said_bytes += len(text)
        is_struck = UP in self._struck
        self._struck.discard(UP)
        # 130: at Ctrl-C; 143: at SIGTERM
        is_orderly = code in (*ORDERLY_CODES, 130) and "Traceback" not in text
        # Services of a killed `up` end a moment after it; a user tries again
        is_orderly |= "is running it; stop that one" in text
        self.ends.append(
            {
                "name": UP,
                "code": code,
                "at": time.time(),
                "is_struck": is_struck,
                "is_crash": not is_struck and not is_orderly,
                "log": [] if is_struck else text[-1500:].splitlines(),
            }
        )
        self._start_up()

    def owner(self, target: str) -> str:
        return target

    def find(self, target: str) -> psutil.Process | None:
        up = self.system.processes[UP]
        with suppress(psutil.Error, OSError, ValueError, AssertionError):
            if target == UP:
                return psutil.Process(up.pid)
            name = target.removesuffix(" engine")
            process = services(up, self.folder).get(SERVICES.get(name, name))
            if process is None or not target.endswith(" engine"):
                return process
            return find_engine(process.children(recursive=True))
        return None
