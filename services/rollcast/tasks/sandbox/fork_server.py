"""The process that forks judges and programs, enforces deadlines and buries the dead.

    python -P -m rollcast.tasks.sandbox.fork_server CONTROL_DESCRIPTOR VERIFIER [trusted]

Started with a clean environment; imports what its verifier needs, once; then one thread and one
loop. A verifier that is trusted has the user's environment, and its judges are limited only by the
deadline:

    control readable     -> fork a judge for the connection that came with the limits;
                            closed -> end everything
    judge asks           -> fork a program into the judge's process group, or kill it
    SIGCHLD              -> tell the judge how its program ended; a judge that ended closes its
                            grading
    connection hung up,
    deadline             -> kill both, say on the connection how it ended

The deadline is one of processor time, with wall time as a backstop (`Limits.backstop_seconds`): a
judge that only waited for a core until then did not hang.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

from rollcast.config.function_loading import failure, is_function
from rollcast.processes.fork_server import BaseForkServer, forget_signals, prepare_to_fork
from rollcast.processes.limits import address_space_bytes
from rollcast.processes.tree import die_with_parent, kill_group
from rollcast.tasks.sandbox.channel import Channel
from rollcast.tasks.sandbox.child_exit import find_end, kill_child
from rollcast.tasks.sandbox.clocks import cpu_seconds, open_waits
from rollcast.tasks.sandbox.code_judge import grade_code
from rollcast.tasks.sandbox.launcher import KILL, START, Launcher
from rollcast.tasks.sandbox.limits import TRUSTED, VERDICT_SECONDS, Limits
from rollcast.tasks.sandbox.lockdown import Lockdown, hide_memory, make_lockdowns
from rollcast.tasks.sandbox.preparation import prepare
from rollcast.tasks.sandbox.program import run_program
from rollcast.tasks.verifiers import CODE, Grade, Verifier, find_verifier, run_verifier


@dataclass
class RunningGrading:
    connection: socket.socket
    """Only to see the client hang up and to say how it ended: requests and verdicts are the
    judge's."""
    requests: socket.socket
    limits: Limits
    judge: int
    began_at: float
    """time.monotonic(); so is the next."""
    next_look: float
    program: int | None = None
    num_programs: int = 0


class ForkServer(BaseForkServer):
    def __init__(
        self,
        control: socket.socket,
        verifier: Verifier | None,
        judges: Lockdown | None,
        programs: Lockdown,
    ) -> None:
        """verifier: None = programs. judges: None = the verifier is trusted."""
        super().__init__(control)
        self._verifier = verifier
        self._judges = judges
        self._programs = programs
        self._gradings: list[RunningGrading] = []

    def _longest_wait(self) -> float | None:
        next_look = min((grading.next_look for grading in self._gradings), default=None)
        return None if next_look is None else max(0.0, next_look - time.monotonic())

    def _look(self) -> None:
        now_seconds = time.monotonic()
        for grading in [grading for grading in self._gradings if grading.next_look <= now_seconds]:
            self._look_at(grading, now_seconds)

    def _end_all(self) -> None:
        for grading in list(self._gradings):
            self._close(grading, "stopped")

    def _take(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
        if not data:
            self._is_open = False
            return
        limits = Limits(**json.loads(data))
        connection = socket.socket(fileno=descriptors[0])
        requests, judges_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def judge() -> None:
            if self._judges is None:
                die_with_parent()
                self._let_go()
                _run_judge(
                    connection.fileno(), judges_end, open_waits(os.getpid()), self._verifier, limits
                )
            self._judges.put_on(
                limits, connection.fileno(), judges_end.fileno(), open_waits(os.getpid())
            )
            _run_judge(
                3,
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=4),
                5,
                self._verifier,
                limits,
            )

        pid = self._fork(judge, group=0)
        judges_end.close()
        now_seconds = time.monotonic()
        grading = RunningGrading(
            connection, requests, limits, pid, now_seconds, now_seconds + limits.deadline_seconds
        )
        self._gradings.append(grading)
        self._watch(connection, 0, lambda: self._close(grading, "abandoned"))
        self._watch(requests, select.EPOLLIN, lambda: self._obey(grading))

    def _look_at(self, grading: RunningGrading, now_seconds: float) -> None:
        """End the grading if its judge used up its time, or see when
        that could be at the earliest.
        """
        limit = grading.limits.deadline_seconds
        wall = now_seconds - grading.began_at
        if self._judges is None:  # trusted: its work need not be this process's
            self._close(grading, "deadline")
            return
        verdict_seconds = VERDICT_SECONDS if self._verifier is None else 0.0
        try:
            cpu = cpu_seconds(grading.judge)
        except OSError:  # a kernel without such clocks: wall time counts
            cpu = wall
        cpu_left = limit + verdict_seconds - cpu
        wall_left = grading.limits.backstop_seconds + verdict_seconds - wall
        if cpu_left <= 0.0:
            self._close(grading, "deadline")
        elif wall_left <= 0.0:
            self._close(grading, "backstop")
        else:
            # Between two looks at the clocks of one judge
            grading.next_look = now_seconds + max(0.005, min(cpu_left, wall_left))

    def _obey(self, grading: RunningGrading) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(grading.requests, 16, 3, socket.MSG_DONTWAIT)
        except OSError:  # the judge died with something unread
            data = b""
            descriptors = []
        # Programs of one grading: one for each case, and a few more
        if (
            data == START
            and descriptors
            and grading.program is None
            and grading.num_programs < 4096
        ):
            self._start_program(grading, descriptors)
        elif data == KILL and grading.program is not None:
            os.kill(grading.program, signal.SIGKILL)
        elif not data:
            self._poll.modify(grading.requests, 0)
        for descriptor in descriptors:
            os.close(descriptor)

    def _start_program(self, grading: RunningGrading, descriptors: list[int]) -> None:
        def program() -> None:
            for target, descriptor in enumerate(descriptors[1:]):
                os.dup2(descriptor, target)
            self._programs.put_on(grading.limits, descriptors[0])
            run_program(Channel(3))

        grading.num_programs += 1
        grading.program = self._fork(program, group=grading.judge)
        waits = open_waits(grading.program)
        with contextlib.suppress(OSError):
            answer = json.dumps({"pid": grading.program}).encode()
            socket.send_fds(grading.requests, [answer], [waits], socket.MSG_DONTWAIT)
        os.close(waits)

    def _fork(self, run: Callable[[], None], *, group: int) -> int:
        """group: of processes; 0 = a new one."""
        pid = os.fork()
        if pid == 0:
            try:
                forget_signals()
                os.setpgid(0, group)
                run()
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):
            os.setpgid(pid, group)
        return pid

    def _reap(self) -> None:
        for grading in list(self._gradings):
            if grading.program is not None and (end := find_end(grading.program)) is not None:
                grading.program = None
                with contextlib.suppress(OSError):
                    grading.requests.send(json.dumps(asdict(end)).encode(), socket.MSG_DONTWAIT)
            if (end := find_end(grading.judge)) is not None:
                self._close(grading, "ended", judge_code=end.code)

    def _close(
        self, grading: RunningGrading, end_reason: str, *, judge_code: int | None = None
    ) -> None:
        """Nothing of the grading lives on after this."""
        self._gradings.remove(grading)
        if self._judges is None:  # what a trusted verifier started is of its group
            kill_group(grading.judge)
        if grading.program is not None:
            kill_child(grading.program)
        if judge_code is None:
            end = kill_child(grading.judge)
            if end_reason == "backstop":
                own_seconds = time.monotonic() - grading.began_at - end.waited
                end_reason = (
                    "deadline" if own_seconds > grading.limits.deadline_seconds else "waited"
                )
        with contextlib.suppress(OSError):
            end_record = json.dumps({"ended": end_reason, "code": judge_code})
            grading.connection.send(b"\n" + end_record.encode() + b"\n", socket.MSG_DONTWAIT)
        self._forget(grading.connection)
        self._forget(grading.requests)


def _run_judge(
    connection: int,
    requests: socket.socket,
    own_waits: int,
    verifier: Verifier | None,
    limits: Limits,
) -> NoReturn:
    """One request from `connection`, one line of answer on it; verifier: None = programs. Never
    returns.

    own_waits: a descriptor for how long this process waited for a core.
    """
    parts = []
    while chunk := os.read(connection, 1 << 20):
        parts.append(chunk)
    request = json.loads(b"".join(parts))
    completion = request["completion"]
    reference = request["reference"]
    if verifier is not None:
        grade = run_verifier(verifier, completion, reference)
    else:
        launcher = Launcher(requests, own_waits, limits)
        try:
            grade = grade_code(completion, json.loads(reference), launcher)
        except Exception as error:
            grade = Grade(0.0, "error", failure=failure(error))
    os.write(connection, json.dumps(asdict(grade)).encode())
    os._exit(0)


def _lower_descriptor(descriptor: int) -> int:
    """A duplicate of the file under the lowest free number: of a grader with many files it comes
    under a number that no child closes, because those below MAX_SERVER_FILES are all that a fork
    server opens itself."""
    low = os.dup(descriptor)
    os.close(descriptor)
    return low


@contextlib.contextmanager
def _ends_with_client(control: socket.socket) -> Iterator[None]:
    """While a module is imported, SIGIO ends this process when its client is gone, even if the
    import hangs.

    The signal that a dying parent sends (PR_SET_PDEATHSIG) is no help: it comes when the thread
    that started this process ends. The client sends nothing before this server is ready, so any
    event on `control` is the client's end.
    """
    flags = fcntl.fcntl(control, fcntl.F_GETFL)
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, flags | os.O_ASYNC)
    started = select.poll()
    started.register(control, 0)
    if started.poll(0):  # it was gone before the signal was asked for
        os._exit(1)
    try:
        yield
    finally:
        fcntl.fcntl(control, fcntl.F_SETFL, flags)


def main(arguments: list[str]) -> int:
    control = socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=_lower_descriptor(int(arguments[0]))
    )
    name = arguments[1]
    trusted = arguments[2:] == [TRUSTED]
    if not trusted:
        hide_memory()

    def prepare_verifier() -> tuple[Lockdown, Lockdown]:
        with _ends_with_client(control):
            if is_function(name):
                # May hold a module of the user; comes after all installed packages.
                sys.path.append(os.getcwd())
            readable = prepare(name)
        return make_lockdowns(readable, address_space_bytes())

    lockdowns = prepare_to_fork(control, prepare_verifier, failure)
    if lockdowns is None:
        return 1
    judges, programs = lockdowns
    verifier = None if name == CODE else find_verifier(name)
    if trusted and verifier is not None:
        verifier = replace(verifier, place="process")
    control.send(json.dumps({"ready": True}).encode())
    ForkServer(control, verifier, None if trusted else judges, programs).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
