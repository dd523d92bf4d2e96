"""Keeps the services of one run alive on this machine.

start in order -> watch: a dead service is started again, after a back-off, up to a limit; its reason is reported each
time
               -> three starts in a row fail for one reason: it is given up, regardless of the limit
               -> the trainer ended with 0: the run is finished
               -> a service ended its first start with 2: the user must fix something; the run is given up with its
                  last words
               -> SIGINT, SIGTERM or SIGHUP: interrupted (a second one kills at once)
               -> it ends in any way but well before it made anything: all are stopped at once, within seconds
               -> what shows the run fails: it is shown no more, and the failure raised once all is stopped
               -> stop in order, each with its deadline (`stopping`); nothing is left running
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

from rollcast.config.errors import EXIT_FAILED, EXIT_USER_ERROR, UserError
from rollcast.local.last_words import same_reason
from rollcast.local.process import Orphans, Service, ServiceSpec
from rollcast.local.stopping import killed_at
from rollcast.telemetry.host_memory import how_it_ended, kills

POLL_SECONDS = 0.2
RESTART_WINDOW_SECONDS = 600.0
MAX_BACKOFF_SECONDS = 30.0
MAX_SAME_FAILURES = 3
"""Starts in a row that fail for one reason: a further one would fail as well."""
CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV})
"""Signals that a process brings upon itself, so that its log says why; the others come from outside."""
NOTHING_MADE_STOP_SECONDS = 3.0
"""Deadline for all services together before a run made anything. A service that imports or compiles does not listen
yet."""


class EventReport(Protocol):
    """Given one line for the user about something that happened."""

    def __call__(self, line: str, *, trouble: bool = False) -> None:
        """`trouble`: something went wrong."""


class Ending(StrEnum):
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class Doing(StrEnum):
    """What becomes of the run at this moment."""

    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(slots=True)
class _Watched:
    service: Service
    died_at: deque[float] = field(default_factory=deque)
    failures: list[str] = field(default_factory=list)
    """Reasons of the newest starts that failed one after the other, if they are the same."""
    start_again_at: float | None = None
    abandoned: bool = False


class Supervisor:
    """Runs services until one named `finishing` ends well. Use from the main thread: it takes the signals to stop."""

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        *,
        restart_limit: int,
        interrupt_seconds: float,
        report: EventReport,
        tick: Callable[[], None],
        worth_saving: Callable[[], bool] = lambda: True,
        finishing: str = "trainer",
    ) -> None:
        """`interrupt_seconds`: from a signal until all have ended except those that save their work. `tick` is called
        some
        times a second. `worth_saving`: whether this start has made what could be lost."""
        self._watched = [_Watched(Service(spec)) for spec in specs]
        self.doing = Doing.RUNNING
        self._restart_limit = restart_limit
        self._interrupt_seconds = interrupt_seconds
        self._show_line = report
        self._show_state = tick
        self._view_error: Exception | None = None
        self._worth_saving = worth_saving
        self._finishing = finishing
        self._signals = self._signals_at_stop = 0
        self._asked_at: float | None = None
        self._orphans = Orphans()
        self._kills = kills()

    def run(self, ready: Callable[[Service], None] = lambda _: None) -> Ending:
        """Start, watch and stop. `ready` waits for a service just started, at most until `asked_to_stop`.

        Raises UserError if a service reports a mistake of the user, ServiceLostError if one cannot be kept alive, and
        errors of `report` and `tick`.
        """
        with self._signals_taken():
            finished = False
            try:
                for watched in self._watched:
                    if not self.asked_to_stop():
                        watched.service.start()
                        ready(watched.service)
                ending = self._watch()
                finished = ending is Ending.FINISHED
            finally:
                self.doing = Doing.STOPPING
                if finished or self._worth_saving():
                    self._stop(is_finished=finished)
                else:
                    self._stop_at_once()
                self.doing = Doing.FINISHED if finished else Doing.STOPPED
        if self._view_error is not None:
            raise self._view_error
        return ending

    def asked_to_stop(self) -> bool:
        """Whether a signal came."""
        return self._signals > 0

    def _watch(self) -> Ending:
        while not self.asked_to_stop() and self._view_error is None:
            for watched in self._watched:
                if self._look_at(watched):
                    return Ending.FINISHED
            self._orphans.sweep(self._known_pids())
            self._tick()
            time.sleep(POLL_SECONDS)
        self._report(
            "stopping: the generators hand back their work, then the trainer writes a checkpoint; "
            f"{self._interrupt_seconds:.0f} s at most, and what the checkpoint takes beyond that"
            if self._worth_saving()
            else "stopping: nothing is lost, the run has made nothing since this start"
        )
        return Ending.INTERRUPTED

    def _report(self, line: str, *, trouble: bool = False) -> None:
        self._show(lambda: self._show_line(line, trouble=trouble))

    def _tick(self) -> None:
        self._show(self._show_state)

    def _show(self, call: Callable[[], None]) -> None:
        """Whatever fails in showing the run (a closed pipe, a full disk), the checkpoint comes first."""
        if self._view_error is None:
            try:
                call()
            except Exception as error:
                self._view_error = error

    def _look_at(self, watched: _Watched) -> bool:
        """Start it again if it died; True if the run is finished."""
        service = watched.service
        now = time.monotonic()
        if watched.abandoned:
            return False
        if watched.start_again_at is not None:
            if now >= watched.start_again_at:
                watched.start_again_at = None
                service.start()
            return False
        code = service.poll()
        if code is None:
            return False
        if code == 0 and service.spec.name == self._finishing:
            return True
        self._handle_death(watched, code, now)
        return False

    def _handle_death(self, watched: _Watched, code: int, now: float) -> None:
        service = watched.service
        spec = watched.service.spec
        how = how_it_ended(code, self._kills)
        self._kills = kills()
        words = service.last_words() if code > 0 or -code in CRASHES else ""
        while watched.died_at and now - watched.died_at[0] > RESTART_WINDOW_SECONDS:
            watched.died_at.popleft()
        watched.died_at.append(now)
        deaths = len(watched.died_at)
        failures = _note_failure(watched, words)
        # One that has worked with these settings may say 2 because of the moment: memory that is short, say.
        is_users_mistake = code == EXIT_USER_ERROR and service.starts == 1
        if is_users_mistake and spec.essential:
            raise UserError(f"{words} (log: {service.log})")
        if is_users_mistake or failures == MAX_SAME_FAILURES or deaths > self._restart_limit:
            tried = f"restarted {deaths - 1} times"
            if failures == MAX_SAME_FAILURES:
                tried = f"{failures} starts failed for this reason"
            message = f"{spec.name} {how}{words and f': {words}'} (log: {service.log}; {tried})"
            if spec.essential:
                raise ServiceLostError(message)
            watched.abandoned = True
            self._report(f"{message}; the run goes on without it", trouble=True)
            return
        delay = 0.0 if deaths == 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** (deaths - 2))
        watched.start_again_at = now + delay
        again = f"{spec.name} {how}; starting it again" + (f" in {delay:.0f} s" if delay else "")
        self._report(again + (f". It said: {words} (log: {service.log})" if words else ""), trouble=True)

    def _stop(self, *, is_finished: bool) -> None:
        self._signals_at_stop = self._signals
        orders = sorted({watched.service.spec.stop_order for watched in self._watched})
        for place, order in enumerate(orders):
            of_order = [watched.service for watched in self._watched if watched.service.spec.stop_order == order]
            services = [service for service in of_order if service.running]
            for service in services:
                service.terminate()
            began = time.monotonic()
            num_later = len(orders) - place - 1
            for service in services:
                self._await_end(service, began, is_finished=is_finished, num_later_orders=num_later)
        self._orphans.sweep(self._known_pids(), grace_seconds=0.0)

    def _await_end(self, service: Service, began: float, *, is_finished: bool, num_later_orders: int) -> None:
        """Wait for a service that was asked to end; kill it if it takes too long."""
        is_late_told = False
        spec = service.spec
        while service.running and self._signals <= max(self._signals_at_stop, 1):
            now = time.monotonic()
            deadline = self._deadline()
            limit = killed_at(
                spec, began, is_finished=is_finished, deadline=deadline, num_later_orders=num_later_orders
            )
            if now >= limit:
                break
            if spec.saves and deadline is not None and now >= deadline and not is_late_told:
                is_late_told = True
                self._report(
                    f"{spec.name} still saves the run's work, for {limit - now:.0f} s at most; Ctrl-C again ends it at "
                    "once, and what was made since the checkpoint before is made again"
                )
            self._tick()
            time.sleep(0.05)
        if service.running:
            self._tell_of_kill(spec, is_finished=is_finished)
            service.kill()
            self._orphans.sweep(self._known_pids(), grace_seconds=0.0)
        elif spec.saves and (code := service.poll()) in (EXIT_FAILED, EXIT_USER_ERROR):
            self._report(
                f"{spec.name} {how_it_ended(code, self._kills)} while it stopped: {service.last_words()} "
                f"(log: {service.log})",
                trouble=True,
            )

    def _deadline(self) -> float | None:
        """Deadline of all services together, after a signal."""
        return None if self._asked_at is None else self._asked_at + self._interrupt_seconds

    def _tell_of_kill(self, spec: ServiceSpec, *, is_finished: bool) -> None:
        if is_finished:
            return
        if self._asked_at is not None and spec.when_cut:
            self._report(f"{spec.name} was cut short: {spec.when_cut}")
        else:
            self._report(f"{spec.name} did not stop in time and was killed", trouble=True)

    def _stop_at_once(self) -> None:
        asked = self._signals
        services = [watched.service for watched in self._watched]
        for service in services:
            service.terminate()
        deadline = time.monotonic() + NOTHING_MADE_STOP_SECONDS
        while any(service.running for service in services) and time.monotonic() < deadline:
            if self._signals > max(asked, 1):
                break
            self._tick()
            time.sleep(0.05)
        for service in services:
            service.kill()
        self._orphans.sweep(self._known_pids(), grace_seconds=0.0)

    def _known_pids(self) -> set[int]:
        return {pid for watched in self._watched for pid in watched.service.pids}

    @contextmanager
    def _signals_taken(self) -> Iterator[None]:
        def count(number: int, _: FrameType | None) -> None:
            # A closed terminal often sends SIGHUP twice; that is not a request to end immediately.
            self._signals = max(self._signals, 1) if number == signal.SIGHUP else self._signals + 1
            self._asked_at = self._asked_at or time.monotonic()

        taken = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
            taken.append(signal.SIGHUP)
        previous = {number: signal.signal(number, count) for number in taken}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _note_failure(watched: _Watched, words: str) -> int:
    """How many starts in a row have now failed for this reason; 0 if this one served, or was ended from outside."""
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
