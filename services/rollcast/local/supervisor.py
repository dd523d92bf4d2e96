"""Keeps the services of one run alive on this machine.

start in order -> watch: a dead service is started again after a back-off, up to a limit, and its
                  reason reported
               -> three starts in a row fail for one reason: it is given up, regardless of the limit
               -> the trainer ended with 0: the run is finished
               -> a service ended its first start with 2: the user must fix something; the run is
                  given up with its last words
               -> SIGINT, SIGTERM or SIGHUP: interrupted (a second one kills at once)
               -> it ends in any way but well before it made anything: all are stopped at once,
                  within seconds
               -> what shows the run fails: it is shown no more, and the failure raised once all
                  is stopped
               -> stop in order, each with its deadline; nothing is left running

How long a service may take to end:
finished work that no one waits for has a few seconds, reports to others their own limit
given up      each has its own limit
interrupted   all of them together have one deadline, of which each order leaves a share to the
              later ones; whoever saves what would be lost has its own limit beyond that
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Protocol

from rollcast.config.errors import EXIT_FAILED, EXIT_FAILED_AGAIN, EXIT_USER_ERROR, UserError
from rollcast.local.process import ORPHAN_SECONDS, Orphans, Service, ServiceSpec, same_reason
from rollcast.telemetry.host_memory import how_it_ended, kills

POLL_SECONDS = 0.2
STOP_POLL_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 30.0
CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV})
"""Signals that a process brings upon itself, so that its log says why; the others come from
outside."""

FINISHED_SECONDS = 5.0
"""Limit for unfinished work once the run is finished."""
SHARE_SECONDS = 2.0
"""Share of an interrupt's deadline for each later order, and the least time of an order whose
predecessors used all."""


class EventReport(Protocol):
    """Given one line for the user about something that happened."""

    def __call__(self, line: str, *, trouble: bool = False) -> None:
        """`trouble`: something went wrong."""


class RunState(StrEnum):
    """The state of the run at this moment; the last three remain."""

    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    PAUSED = "paused"


@dataclass(slots=True)
class _Watched:
    service: Service
    died_at: deque[float] = field(default_factory=deque)
    failures: list[str] = field(default_factory=list)
    """Reasons of the newest starts that failed one after the other, if they are the same."""
    start_again_at: float | None = None
    abandoned: bool = False


class Supervisor:
    """Runs services until the trainer ends well.

    Use from the main thread: it takes the signals to stop.
    """

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        *,
        restart_limit: int,
        interrupt_seconds: float,
        report: EventReport,
        tick: Callable[[], None],
        worth_saving: Callable[[], bool] = lambda: True,
    ) -> None:
        """`interrupt_seconds`: from a signal until all have ended except those that save their
        work. `tick` is called some times a second. `worth_saving`: whether this start has made what
        could be lost."""
        self._watched = [_Watched(Service(spec)) for spec in specs]
        self.run_state = RunState.RUNNING
        self._restart_limit = restart_limit
        self._interrupt_seconds = interrupt_seconds
        self._show_line = report
        self._show_state = tick
        self._view_error: Exception | None = None
        self._worth_saving = worth_saving
        self._signals = self._signals_at_stop = 0
        self._asked_at: float | None = None
        self._orphans = Orphans()
        self._kills = kills()

    def run(self, ready: Callable[[Service], None] = lambda _: None) -> RunState:
        """Start, watch and stop; returns FINISHED, or STOPPED after an interrupt. `ready` waits for
        a service just started, at most until `asked_to_stop`.

        Raises UserError if a service reports a mistake of the user, ServiceLostError if one cannot
        be kept alive, and errors of `report` and `tick`.
        """
        with self._handle_signals():
            finished = False
            try:
                for watched in self._watched:
                    if not self.asked_to_stop():
                        watched.service.start()
                        ready(watched.service)
                finished = self._watch()
            finally:
                self.run_state = RunState.STOPPING
                self._signals_at_stop = self._signals
                if finished or self._worth_saving():
                    self._stop_in_order(is_finished=finished)
                else:
                    self._stop_at_once()
                self._sweep_orphans(grace_seconds=0.0)
                self.run_state = RunState.FINISHED if finished else RunState.STOPPED
        if self._view_error is not None:
            raise self._view_error
        return self.run_state

    def asked_to_stop(self) -> bool:
        """Whether a signal came."""
        return self._signals > 0

    def _watch(self) -> bool:
        """Whether the run is finished; False if it is asked to stop."""
        while not self.asked_to_stop() and self._view_error is None:
            for watched in self._watched:
                if self._look_at(watched):
                    return True
            self._sweep_orphans()
            self._show(self._show_state)
            time.sleep(POLL_SECONDS)
        self._report(
            "stopping: the generators hand back their work, then the trainer writes a checkpoint; "
            f"{self._interrupt_seconds:.0f} s at most, and what the checkpoint takes beyond that"
            if self._worth_saving()
            else "stopping: nothing is lost, the run has made nothing since this start"
        )
        return False

    def _report(self, line: str, *, trouble: bool = False) -> None:
        self._show(lambda: self._show_line(line, trouble=trouble))

    def _show(self, call: Callable[[], None]) -> None:
        """Whatever fails in showing the run (a closed pipe, a full disk), the checkpoint comes
        first.
        """
        if self._view_error is None:
            try:
                call()
            except Exception as error:
                self._view_error = error

    def _look_at(self, watched: _Watched) -> bool:
        """Start it again if it died; True if the run is finished."""
        service = watched.service
        now_seconds = time.monotonic()
        if watched.abandoned:
            return False
        if watched.start_again_at is not None:
            if now_seconds >= watched.start_again_at:
                watched.start_again_at = None
                service.start()
            return False
        code = service.poll()
        if code == 0 and service.spec.name == "trainer":
            return True
        if code is not None:
            self._handle_death(watched, code, now_seconds)
        return False

    def _handle_death(self, watched: _Watched, code: int, now_seconds: float) -> None:
        service = watched.service
        spec = service.spec
        how = how_it_ended(code, self._kills)
        has_words = code > 0 or -code in CRASHES
        is_from_outside = not has_words and kills() == self._kills
        self._kills = kills()
        words = service.last_words() if has_words else ""
        # 600.0: seconds in which deaths count together; chosen, not measured.
        while watched.died_at and now_seconds - watched.died_at[0] > 600.0:
            watched.died_at.popleft()
        watched.died_at.append(now_seconds)
        deaths = len(watched.died_at)
        failures = _note_failure(watched, words)
        # One that has worked with these settings may say 2 because of the moment: memory that is
        # short, say.
        is_users_mistake = code == EXIT_USER_ERROR and service.starts == 1
        if spec.essential and (is_users_mistake or code == EXIT_FAILED_AGAIN):
            raise UserError(f"{words} (log: {service.log})")
        # Starts in a row that fail for one reason: a further one would fail as well.
        max_same_failures = 3
        if is_users_mistake or failures == max_same_failures or deaths > self._restart_limit:
            tried = f"restarted {deaths - 1} times"
            if failures == max_same_failures:
                tried = f"{failures} starts failed for this reason"
            message = f"{spec.name} {how}{words and f': {words}'} (log: {service.log}; {tried})"
            if spec.essential:
                raise ServiceLostError(message, is_from_outside=is_from_outside)
            watched.abandoned = True
            self._report(f"{message}; the run goes on without it", trouble=True)
            return
        delay = 0.0 if deaths == 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** (deaths - 2))
        watched.start_again_at = now_seconds + delay
        restart_notice = f"{spec.name} {how}; starting it again" + (
            f" in {delay:.0f} s" if delay else ""
        )
        self._report(
            restart_notice + (f". It said: {words} (log: {service.log})" if words else ""),
            trouble=True,
        )

    def _stop_in_order(self, *, is_finished: bool) -> None:
        services = [watched.service for watched in self._watched]
        orders = sorted({service.spec.stop_order for service in services})
        for num_before, order in enumerate(orders, start=1):
            stopping_services = [
                service
                for service in services
                if service.spec.stop_order == order and service.running
            ]
            for service in stopping_services:
                service.terminate()
            began_at = time.monotonic()
            for service in stopping_services:
                self._await_end(
                    service,
                    began_at,
                    is_finished=is_finished,
                    num_later_orders=len(orders) - num_before,
                )

    def _await_end(
        self, service: Service, began_at: float, *, is_finished: bool, num_later_orders: int
    ) -> None:
        """Wait for a service that was asked to end; kill it if it takes too long."""
        is_late_told = False
        spec = service.spec
        while service.running and not self._is_hurried():
            now_seconds = time.monotonic()
            deadline = None if self._asked_at is None else self._asked_at + self._interrupt_seconds
            limit = killed_at(
                spec,
                began_at,
                is_finished=is_finished,
                deadline=deadline,
                num_later_orders=num_later_orders,
            )
            if now_seconds >= limit:
                break
            if spec.saves and deadline is not None and now_seconds >= deadline and not is_late_told:
                is_late_told = True
                self._report(
                    f"{spec.name} still saves the run's work, for {limit - now_seconds:.0f} s at "
                    "most; Ctrl-C again "
                    "ends it at once, and what was made since the checkpoint before is made again"
                )
            self._show(self._show_state)
            time.sleep(STOP_POLL_SECONDS)
        if service.running:
            if self._asked_at is not None and spec.when_cut and not is_finished:
                self._report(f"{spec.name} was cut short: {spec.when_cut}")
            elif not is_finished:
                self._report(f"{spec.name} did not stop in time and was killed", trouble=True)
            service.kill()
            self._sweep_orphans(grace_seconds=0.0)
        elif spec.saves and (code := service.poll()) in (EXIT_FAILED, EXIT_USER_ERROR):
            self._report(
                f"{spec.name} {how_it_ended(code, self._kills)} while it stopped: "
                f"{service.last_words()} (log: {service.log})",
                trouble=True,
            )

    def _stop_at_once(self) -> None:
        services = [watched.service for watched in self._watched]
        for service in services:
            service.terminate()
        # Deadline of all services before a run made anything: one that imports or compiles does not
        # listen yet
        deadline = time.monotonic() + 3.0
        while any(service.running for service in services) and time.monotonic() < deadline:
            if self._is_hurried():
                break
            self._show(self._show_state)
            time.sleep(STOP_POLL_SECONDS)
        for service in services:
            service.kill()

    def _is_hurried(self) -> bool:
        """Whether a further signal came after the one that began the stop."""
        return self._signals > max(self._signals_at_stop, 1)

    def _sweep_orphans(self, *, grace_seconds: float = ORPHAN_SECONDS) -> None:
        known_pids = {pid for watched in self._watched for pid in watched.service.pids}
        self._orphans.sweep(known_pids, grace_seconds=grace_seconds)

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        def count(number: int, _: FrameType | None) -> None:
            # A closed terminal often sends SIGHUP twice; that is not a request to end immediately.
            self._signals = max(self._signals, 1) if number == signal.SIGHUP else self._signals + 1
            self._asked_at = self._asked_at or time.monotonic()

        handled_signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
            handled_signals.append(signal.SIGHUP)
        previous = {number: signal.signal(number, count) for number in handled_signals}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def killed_at(
    spec: ServiceSpec,
    began_at: float,
    *,
    is_finished: bool,
    deadline: float | None,
    num_later_orders: int,
) -> float:
    """When a service that was asked to end at `began_at` is killed; all of one clock, in seconds.

    `deadline`: of all services together, if the run was interrupted.
    """
    seconds = spec.stop_seconds
    if is_finished and not spec.unhurried:
        seconds = min(seconds, FINISHED_SECONDS)
    if deadline is None or spec.saves:
        return began_at + seconds
    share = deadline - SHARE_SECONDS * num_later_orders
    return began_at + min(seconds, max(share - began_at, SHARE_SECONDS))


def _note_failure(watched: _Watched, words: str) -> int:
    """How many starts in a row have now failed for this reason; 0 if this one served, or was ended
    from outside.
    """
    if not words or watched.service.was_ready:
        watched.failures.clear()
        return 0
    reason = same_reason(words)
    if reason not in watched.failures:
        watched.failures.clear()
    watched.failures.append(reason)
    return len(watched.failures)


class ServiceLostError(RuntimeError):
    """A service died again and again. Not a mistake of the user: the log says what happened."""

    def __init__(self, message: str, *, is_from_outside: bool) -> None:
        """`is_from_outside`: whether its last death was by the signal of another process."""
        super().__init__(message)
        self.is_from_outside = is_from_outside
