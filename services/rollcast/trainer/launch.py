"""`python -m rollcast.trainer.launch`: the trainer's ranks on one machine of a cluster.

    run folder free? (first machine) -> the first machine has an address?
        -> one `python -m rollcast.trainer` a rank
    SIGTERM, on any machine -> passed on: rank 0 hears of it, writes its checkpoint and ends all
        ranks with 143
    a rank fails -> the others are ended; its exit code is ours, or all start again here
        (see RESTART_MARK)
    the release has another trainer -> as at SIGTERM, but with 76, on all machines: the Job fails
        and frees devices

torchrun would turn every failure into exit code 1: a user's mistake (2), which no restart fixes,
must stay visible to a Job, and so must an obeyed SIGTERM (143).
"""

import argparse
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from rollcast.config.access_modes import FOLDER_MODE
from rollcast.config.errors import (
    EXIT_FAILED,
    EXIT_FAILED_AGAIN,
    EXIT_SUPERSEDED,
    EXIT_USER_ERROR,
    UserError,
    refused_by_the_world,
)
from rollcast.config.run import load_run_config
from rollcast.runfolder.files import TRAINER_LOCK
from rollcast.telemetry.host_memory import how_it_ended, kills
from rollcast.telemetry.logging import configure_logging, get_logger
from rollcast.trainer.ending import EXIT_INTERRUPTED
from rollcast.trainer.named_trainer import NamedTrainer

LOST_RANK_PATIENCE_SECONDS = 15.0
"""How long ranks may take to end once another one failed. They hang in a collective, so more time
gains nothing."""
POLL_SECONDS = 0.2
RESTART_MARK = "ROLLCAST_RANKS_RESTARTED"
"""Environment variable: a file to touch when ranks start again in this process. Not set = they
never do.

Whoever replaces the process would wait longer each time, which only failures in quick succession
deserve. The liveness probe reads the file's age, since ranks that start do not answer it.
"""
MIN_WORK_SECONDS = 600.0
"""Work after which a failure is no crash loop: ranks start again here. Sooner it is for the Job to
count."""
RESTART_PAUSE_SECONDS = 5.0
"""Pause before ranks start again, in which the other machines' ranks end too and release the
rendezvous port."""
log = get_logger()


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of this machine's ranks among all ranks."""

    nodes: int
    node_rank: int
    ranks: int
    main_host: str
    main_port: int

    def environment(self, local_rank: int) -> dict[str, str]:
        """Variables that torchrun would set; none for a single rank, which then opens no port for a
        store.
        """
        if self.nodes * self.ranks == 1:
            return {}
        return {
            "RANK": str(self.node_rank * self.ranks + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.nodes * self.ranks),
            "LOCAL_WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": self.main_host if self.nodes > 1 else "127.0.0.1",
            "MASTER_PORT": str(self.main_port),
        }


class Interrupted(Exception):  # noqa: N818  (a request, not a mistake)
    """SIGTERM or SIGINT came, or another trainer was named, before the ranks were started."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.trainer.launch",
        description=(
            "Starts the trainer's ranks of one machine; further arguments go to each of them."
        ),
    )
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    parser.add_argument("--nodes", type=int, default=1, help="machines")
    parser.add_argument("--ranks", type=int, default=1, help="ranks on each, one a GPU")
    parser.add_argument(
        "--node-rank",
        type=int,
        default=int(os.environ.get("JOB_COMPLETION_INDEX", "0")),
        help="of this machine, from 0; default: the index that an Indexed Job gives its pod",
    )
    parser.add_argument("--main-host", default="127.0.0.1", help="name of the first machine")
    parser.add_argument(
        "--main-port", type=int, default=29_500, help="port of its rendezvous store"
    )
    parser.add_argument(
        "--job", help="name of the Job of this pod; default: no ConfigMap names trainers"
    )
    parser.add_argument(
        "--rendered-in", type=Path, help="file with the name of the Job that the release asks for"
    )
    parser.add_argument(
        "--accepted-in",
        type=Path,
        help="file with the name of the Job that the API server accepted",
    )
    arguments, passed_on = parser.parse_known_args()
    configure_logging("trainer-launch")
    placement = Placement(
        arguments.nodes,
        arguments.node_rank,
        arguments.ranks,
        arguments.main_host,
        arguments.main_port,
    )
    named = None
    if arguments.job and arguments.rendered_in and arguments.accepted_in:
        named = NamedTrainer(arguments.job, arguments.rendered_in, arguments.accepted_in)
    launcher = RankLauncher(placement, ["--config", str(arguments.config), *passed_on], named)
    try:
        return launcher.run(load_run_config(arguments.config).run_folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted:
        return EXIT_SUPERSEDED if launcher.superseded else EXIT_INTERRUPTED
    except TimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


class RankLauncher:
    """The ranks of this machine, from start to end."""

    def __init__(
        self, placement: Placement, arguments: list[str], named: NamedTrainer | None
    ) -> None:
        """`named`: which Job is to train, if the release says so."""
        self._placement = placement
        self._arguments = arguments
        self._named = named
        self.superseded = False
        """Whether another trainer was named, and this one leaves for it."""
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._stop = False
        self._num_failures = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)

    def run(self, folder: Path) -> int:
        """Returns the exit code.

        Raises UserError, Interrupted, TimeoutError before a rank was started.
        """
        with (
            self._hold_folder(folder)
            if self._placement.node_rank == 0
            else contextlib.nullcontext()
        ):
            while True:
                started_at = time.monotonic()
                self._start_ranks()
                code = self._wait_for_ranks()
                mark = os.environ.get(RESTART_MARK)
                if mark is None or not self._may_restart(code, time.monotonic() - started_at):
                    return code
                log.warning(
                    "the ranks of this machine start again",
                    exit_code=code,
                    pause_seconds=RESTART_PAUSE_SECONDS,
                )
                Path(mark).touch()
                self._wait(
                    partial(_is_past, time.monotonic() + RESTART_PAUSE_SECONDS),
                    2 * RESTART_PAUSE_SECONDS,
                )

    def _start_ranks(self) -> None:
        if self._placement.nodes > 1:
            host = self._placement.main_host
            # How long the first machine may have no address: its pod may still be waiting for a
            # node
            self._wait(lambda: _has_address(host), 600.0, f"{host} has no address yet")
        self._ranks = [
            subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", "rollcast.trainer", *self._arguments],
                env=os.environ | self._placement.environment(local_rank),
            )
            for local_rank in range(self._placement.ranks)
        ]
        # A signal that came while they were started has not reached all of them.
        if self._stop:
            self._signal(signal.SIGTERM)

    def _may_restart(self, code: int, worked_seconds: float) -> bool:
        """Whether these ranks should go on here: another machine's were moved, or these failed
        after long work.
        """
        if self._stop or code in (0, EXIT_USER_ERROR, EXIT_SUPERSEDED):
            return False
        # Not a SIGTERM of this machine, which sets `_stop`: the ranks of another one were moved.
        if code == EXIT_INTERRUPTED:
            return True
        self._num_failures += 1
        # Failures after which ranks do not start again here: the Job counts more than these, and
        # ends
        return worked_seconds >= MIN_WORK_SECONDS and self._num_failures <= 5

    def _wait_for_ranks(self) -> int:
        failed_codes: list[int] = []
        killed = kills()
        running = list(self._ranks)
        deadline = float("inf")
        while running:
            time.sleep(POLL_SECONDS)
            self._leave_for_another()
            ended_ranks = [rank for rank in running if rank.poll() is not None]
            running = [rank for rank in running if rank not in ended_ranks]
            if time.monotonic() <= deadline:  # we ended the rest ourselves
                self._report(ended_ranks, killed)
            failed_codes += [rank.returncode for rank in ended_ranks if rank.returncode != 0]
            if failed_codes and deadline == float("inf"):
                deadline = time.monotonic() + LOST_RANK_PATIENCE_SECONDS
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
        # These outweigh other codes, because no restart fixes them.
        if {EXIT_USER_ERROR, EXIT_FAILED_AGAIN} & set(failed_codes):
            return EXIT_USER_ERROR
        if failed_codes and (self.superseded or self._left_elsewhere(failed_codes)):
            return EXIT_SUPERSEDED
        first = failed_codes[0] if failed_codes else 0
        # A signal as a shell reports it.
        return first if first >= 0 else 128 - first

    def _report(self, ended_ranks: list[subprocess.Popen[bytes]], kills_before: int) -> None:
        """Name each rank that has ended: one that was killed cannot do so."""
        first_rank = self._placement.node_rank * self._placement.ranks
        for process in ended_ranks:
            code = process.returncode
            say = log.info if code in (0, EXIT_INTERRUPTED) else log.error
            say(
                f"rank {first_rank + self._ranks.index(process)} {how_it_ended(code, kills_before)}"
            )

    def _left_elsewhere(self, failed_codes: list[int]) -> bool:
        """Whether another machine, whose kubelet was sooner, has had all ranks leave for the named
        trainer.

        A JobSet would begin again for a machine that said 143 meanwhile.
        """
        if self._named is None or self._stop or EXIT_INTERRUPTED not in failed_codes:
            return False
        return self._named.read_other_job() != ""

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self._stop = True
        self._signal(signal.SIGTERM)

    def _leave_for_another(self) -> None:
        if (
            self._named is not None
            and not self.superseded
            and (other_job := self._named.find_other_job())
        ):
            log.warning("this trainer leaves: its release names another", job=other_job)
            self.superseded = True
            self._pass_on(signal.SIGTERM, None)

    def _wait(self, condition: Callable[[], bool], seconds: float, reason: str = "") -> None:
        """Raises Interrupted if a stop is requested, TimeoutError after `seconds`.

        `reason`: logged unless empty.
        """
        deadline = time.monotonic() + seconds
        is_logged = False
        while not condition():
            self._leave_for_another()
            if self._stop:
                raise Interrupted
            if time.monotonic() > deadline:
                raise TimeoutError(f"{reason}, after {seconds:.0f} s")
            if reason and not is_logged:
                log.info("waiting", reason=reason)
                is_logged = True
            time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def _hold_folder(self, folder: Path) -> Iterator[None]:
        """Hold the run's folder: after an upgrade the former trainer may still be writing its last
        checkpoint.
        """
        path = folder / TRAINER_LOCK
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            lock = path.open("a")
        except OSError as error:
            raise refused_by_the_world(
                error,
                f"folder = {folder.parent}: cannot be written ({error.strerror}); fix the "
                "volume or its permissions",
            ) from error
        with lock:
            self._wait(
                lambda: _try_lock(lock.fileno()),
                # How long a trainer that ends elsewhere may take for its last step and its
                # checkpoint
                1_800.0,
                "another trainer holds the run's folder",
            )
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning(
            "the run's folder supports no locks; nothing keeps a second trainer out",
            error=str(error),
        )
    return True


def _is_past(monotonic_seconds: float) -> bool:
    return time.monotonic() >= monotonic_seconds


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
