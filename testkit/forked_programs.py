"""Real programs of a run as forks of one process with the imports done: six to twelve seconds of
processor time less for each.

    python -m testkit.forked_programs FOLDER MODULE...

imports the modules, then starts a program for each line of its standard input; the answer is the
process id.

Programs that start others (`rollcast up` its services, a launcher its ranks) fork these of
themselves. These behave as programs do: signals, sessions, exit codes and the death with a parent
are of real processes.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import multiprocessing.util
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from rollcast.telemetry.process_end import end
from testkit.uncompiled import UNCOMPILED, compile_as_told

TRAINER = ("rollcast.trainer.service",)
SYSTEM = (
    *TRAINER,
    "testkit.generator.preloaded",
    "rollcast.generator.service",
    "rollcast.forecaster.service",
    "rollcast.local.ablation",
    "rollcast.local.up",
)
SERVICES = ("rollcast.forecaster.service", "rollcast.autoscaler.service")
STARTING = ("rollcast.local.process", "rollcast.trainer.launch")
"""Modules that start programs."""
START_SECONDS = 120.0
POLL_SECONDS = 0.02
STARTED = "TESTKIT_STARTED"
"""Variable that names a file: a fork shows the arguments of its parent, so its own are in that
file."""
_PR_SET_PDEATHSIG = 1


class Forked(subprocess.Popen[bytes]):
    """A process started by another one, with the interface that tests need.

    Its exit code comes in a file.
    """

    def __init__(self, pid: int, code: Path = Path()) -> None:
        self.pid = pid
        self.returncode = None
        self._code = code
        self._child_created = False  # nothing to wait for at the end of this object

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._exit_code()
        return self.returncode

    def _exit_code(self) -> int | None:
        return int(self._code.read_text()) if self._code.exists() else None

    def wait(self, timeout: float | None = None) -> int:
        seconds = 60.0 if timeout is None else timeout
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a program", seconds)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is known before its exit code is
                os.kill(self.pid, sig)


class ForkedPrograms:
    """`with ForkedPrograms(folder, SYSTEM) as programs`: the parent of the programs, which end with
    it.
    """

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        self._folder = folder
        self._modules = modules

    def __enter__(self) -> ForkedPrograms:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testkit.forked_programs", str(self._folder), *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Torch is imported for all.
            env={name: value for name, value in os.environ.items() if name != UNCOMPILED}
            | {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            | {"VLLM_LOGGING_LEVEL": "ERROR"},
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(START_SECONDS)
        finally:
            self._process.kill()
            self._process.stdout.close()

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, float] | None = None,
        folder: Path | None = None,
    ) -> Forked:
        """`python -m module arguments`, in a session of its own. `settings`: of the trainer
        service's names, other values; `folder`: its working folder.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log.touch()  # the caller reads it immediately
        program_request = {
            "module": module,
            "arguments": [*arguments],
            "log": str(log.absolute()),
            "environment": dict(environment or {}),
            "settings": dict(settings or {}),
            "folder": str((folder or Path.cwd()).absolute()),
        }
        self._process.stdin.write(json.dumps(program_request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"what programs are forked of ended with {self._process.wait(START_SECONDS)}"
        pid = int(answer)
        return Forked(pid, self._folder / f"{pid}.code")


class ForkedChild(Forked):
    """A forked program, with the arguments of subprocess.Popen that programs use."""

    def __init__(
        self, command: Sequence[str], *, guarded: bool, env: Mapping[str, str], **keywords: Any
    ) -> None:
        parent = os.getpid()

        def begin() -> int | None:
            if guarded:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
                assert os.getppid() == parent
            if keywords.get("start_new_session"):
                os.setsid()
            if (log := keywords.get("stdout")) is not None:
                _redirect(log.fileno())
            return run(command[2], command[3:], env)

        super().__init__(fork(begin))
        if (started := env.get(STARTED)) is not None:
            line = {"pid": self.pid, "arguments": [*command], "rank": env.get("RANK")}
            with open(started, "a") as file:
                file.write(json.dumps(line) + "\n")

    def _exit_code(self) -> int | None:
        # A signal's handler asks as well, and may be the one that gets it.
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class _Forking:
    """Replaces `subprocess`: programs of this Python are forked, others are started as usual."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: Sequence[str], **keywords: Any) -> Any:  # noqa: N802
        # rollcast.processes.tree: dying_with_parent, its text, who starts it
        guarded = [*command[1:4]] == ["-I", "-S", "-c"]
        program = [*command[6:]] if guarded else [*command]
        if program[:2] != [sys.executable, "-m"]:
            return subprocess.Popen(command, **keywords)
        return ForkedChild(program, guarded=guarded, **keywords)


def fork(action: Callable[[], int | None]) -> int:
    """The process id of one that ends with the action's exit code, None = 0."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        # what the parent does at its own end; but for these two every program has them
        atexit._clear()
        atexit.register(logging.shutdown)
        atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]
        for number, handler in (
            (signal.SIGCHLD, signal.SIG_DFL),
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGINT, signal.default_int_handler),
        ):
            signal.signal(number, handler)
        code = action() or 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        end(code)


def run(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """`python -m module arguments`."""
    os.environ.clear()
    os.environ.update(environment)
    compile_as_told(environment)
    sys.argv = [module, *arguments]
    program = import_module(module)
    if hasattr(program, "__path__") and find_spec(f"{module}.__main__") is not None:
        program = import_module(f"{module}.__main__")
    if hasattr(program, "main"):
        code: int | None = program.main()
        return code
    runpy.run_module(module, run_name="__main__")
    return 0


def _redirect(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source_fd, target_fd in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source_fd, target_fd)


def _begin(program_request: dict[str, Any]) -> int | None:
    os.setsid()
    _redirect(os.open(program_request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    os.chdir(program_request["folder"])
    for name in STARTING:
        vars(sys.modules[name])["subprocess"] = _Forking()
    for name, value in program_request["settings"].items():
        (service,) = map(import_module, TRAINER)
        assert hasattr(service, name)
        setattr(service, name, value)
    return run(
        program_request["module"],
        program_request["arguments"],
        dict(os.environ) | program_request["environment"],
    )


def main(folder: Path, modules: Sequence[str]) -> None:
    from rollcast.telemetry.heavy_imports import pause_garbage_collection

    with pause_garbage_collection():
        for module in (*STARTING, *modules):
            import_module(module)
    children: set[int] = set()
    try:
        while True:
            if select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
                # One at a time: the next is written after the answer to this one.
                line = sys.stdin.readline()
                if not line:
                    return
                program_request = json.loads(line)
                pid = fork(lambda request=program_request: _begin(request))  # type: ignore[misc]
                children.add(pid)
                # That of a program that had the same id long ago
                (folder / f"{pid}.code").unlink(missing_ok=True)
                print(pid, flush=True)
            children -= _reap(children, folder)
    finally:
        for child in children:
            # One that has only just started has no group of its own yet.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    kill(child, signal.SIGKILL)


def _reap(children: set[int], folder: Path) -> set[int]:
    """Write down the exit codes of the children that have ended, and return these."""
    ended_pids = set()
    for child in children:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended_pids.add(pid)
            temporary_file = folder / f"{pid}.new"
            temporary_file.write_text(str(os.waitstatus_to_exitcode(status)))
            temporary_file.replace(folder / f"{pid}.code")
    return ended_pids


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    end(0)
