"""Real trainers as forks of one process that has imported torch: six seconds of processor time less for each.

    python -m testkit.trainer.forked     a line of standard input is a start; the answer is the process id

Launchers are forked as well, and fork their ranks of themselves. What they do is what they do as programs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

START_SECONDS = 120.0
POLL_SECONDS = 0.02


class Forked(subprocess.Popen[bytes]):
    """A process that somebody else has started: what a test asks of one. Its exit code comes in a file."""

    def __init__(self, pid: int, code: Path) -> None:
        self.pid = pid
        self.returncode = None
        self._code = code
        self._child_created = False  # nothing to wait for at the end of this object

    def poll(self) -> int | None:
        if self.returncode is None and self._code.exists():
            self.returncode = int(self._code.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (60.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a trainer", deadline)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


class ForkedTrainers:
    """`with ForkedTrainers(folder) as trainers`: a process that has imported torch; those forked of it end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> ForkedTrainers:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testkit.trainer.forked", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(START_SECONDS)
        self._process.stdout.close()

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: dict[str, str] | None = None,
        settings: dict[str, float] | None = None,
    ) -> Forked:
        """`python -m module arguments`, in a session of its own. `settings`: of module-level names, other values."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log.touch()  # who started it reads it at once
        told: dict[str, Any] = {"module": module, "arguments": [*arguments], "log": str(log)}
        told |= {"environment": environment or {}, "settings": settings or {}}
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        return Forked(pid, self._folder / f"{pid}.code")


class ForkedRank:
    """What a launcher asks of a rank that it started."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        assert command[1:3] == ["-m", "rollcast.trainer"], command
        self.returncode: int | None = None
        self.pid = fork(lambda: run("rollcast.trainer", command[3:], env))

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def fork(action: Callable[[], int]) -> int:
    """The process id of one that ends with the action's exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        code = action()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(module: str, arguments: Sequence[str], environment: dict[str, str]) -> int:
    """`module`: with a function main, or a package with such a __main__."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    found = import_module(module)
    main: Callable[[], int] = (import_module(f"{module}.__main__") if hasattr(found, "__path__") else found).main
    return main()


def _begin(told: dict[str, Any]) -> int:
    from rollcast.trainer import launch, service

    os.setsid()
    log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for here, there in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(here, there)
    launch.subprocess.Popen = ForkedRank  # type: ignore[attr-defined]
    for name, value in told["settings"].items():
        assert hasattr(service, name)
        setattr(service, name, value)
    return run(told["module"], told["arguments"], dict(os.environ) | told["environment"])


def main(folder: Path) -> None:
    from rollcast.telemetry.heavy_imports import uncollected

    with uncollected():
        import_module("rollcast.trainer.service")
    children: set[int] = set()

    def reap(*_: object) -> None:
        for child in [*children]:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                children.discard(pid)
                whole = folder / f"{pid}.new"
                whole.write_text(str(os.waitstatus_to_exitcode(status)))
                whole.replace(folder / f"{pid}.code")

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        told = json.loads(line)
        pid = fork(lambda told=told: _begin(told))  # type: ignore[misc]
        children.add(pid)
        print(pid, flush=True)
        reap()  # it may have ended already
    for child in [*children]:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
