"""Keeps the services of one run alive on this machine.

start in order -> watch: a dead service is started again, after a back-off, up to a limit
               -> the trainer ended with 0: the run is finished
               -> a service ended its first start with 2: the user must mend something; the run is given up with its
                  last words
               -> SIGINT, SIGTERM or SIGHUP: interrupted (a second one kills at once)
               -> it ends in any way but well before it made anything: all are stopped at once, within seconds
               -> what shows the run fails: it is shown no more, and the failure raised once all is stopped
               -> stop in order, each with its deadline; nothing is left running
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Protocol

from rollcast.config.errors import EXIT_USER_ERROR, UserError
from rollcast.local.process import Orphans, Service, ServiceSpec
from rollcast.telemetry.host_memory import how_it_ended, kills

POLL_SECONDS = 0.2
RESTART_WINDOW_SECONDS = 600.0
MAX_BACKOFF_SECONDS = 30.0
FINISHED_STOP_SECONDS = 5.0
"""When the run is finished, nobody waits for unfinished work."""
NOTHING_MADE_STOP_SECONDS = 3.0
"""The same before a run made anything; for all services together. What imports or compiles does not listen yet."""


class EventReport(Protocol):
    """Given one line for the user about something that happened."""

    def __call__(self, line: str, *, trouble: bool = False) -> None:
        """`trouble`: something went wrong."""


class Ending(StrEnum):
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class _Watched:
    service: Service
    died_at: deque[float] = field(default_factory=deque)
    start_again_at: float | None = None
    abandoned: bool = False


class Supervisor:
    """Runs services until one named `finishing` ends well. Use from the main thread: it takes the signals to stop."""

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        *,
        restart_limit: int,
        report: EventReport,
        tick: Callable[[], None],
        worth_saving: Callable[[], bool] = lambda: True,
        finishing: str = "trainer",
    ) -> None:
        """`tick` is called some times a second. `worth_saving`: whether this start has made what could be lost."""
        self._watched = [_Watched(Service(spec)) for spec in specs]
        self._restart_limit = restart_limit
        self._show_line = report
        self._show_state = tick
        self._view_error: Exception | None = None
        self._worth_saving = worth_saving
        self._finishing = finishing
        self._signals = 0
        self._orphans = Orphans()
        self._kills = kills()

    def run(self, ready: Callable[[Service], None] = lambda _: None) -> Ending:
        """Start, watch and stop. `ready` waits for a service just started, at most until `asked_to_stop`.

        Raises UserError where a service says that the user must mend something, ServiceLostError where one cannot be
        kept alive, and what `report` or `tick` raised.
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
                if finished or self._worth_saving():
                    self._stop(quickly=finished)
                else:
                    self._stop_at_once()
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
            "stopping: the generators hand back their work, then the trainer writes a checkpoint"
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
        """Start it again where it died; True where the run is finished."""
        service, now = watched.service, time.monotonic()
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
        spec = watched.service.spec
        how = how_it_ended(code, self._kills)
        self._kills = kills()
        while watched.died_at and now - watched.died_at[0] > RESTART_WINDOW_SECONDS:
            watched.died_at.popleft()
        watched.died_at.append(now)
        deaths = len(watched.died_at)
        # One that has worked with these settings may say 2 because of the moment: memory that is short, say.
        is_users_mistake = code == EXIT_USER_ERROR and watched.service.starts == 1
        if is_users_mistake or deaths > self._restart_limit:
            message = f"{spec.name} {how}: {watched.service.last_words()}"
            if spec.essential:
                if is_users_mistake:
                    raise UserError(watched.service.last_words())
                raise ServiceLostError(f"{message} (log: {watched.service.log}; restarted {deaths - 1} times)")
            watched.abandoned = True
            self._report(f"{message}; the run goes on without it", trouble=True)
            return
        delay = 0.0 if deaths == 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** (deaths - 2))
        watched.start_again_at = now + delay
        self._report(f"{spec.name} {how}; starting it again" + (f" in {delay:.0f} s" if delay else ""), trouble=True)

    def _stop(self, *, quickly: bool) -> None:
        asked = self._signals
        for order in sorted({watched.service.spec.stop_order for watched in self._watched}):
            services = [w.service for w in self._watched if w.service.spec.stop_order == order]
            for service in services:
                service.terminate()
            began = time.monotonic()
            for service in services:
                hurried = quickly and not service.spec.unhurried
                limit = min(service.spec.stop_seconds, FINISHED_STOP_SECONDS) if hurried else service.spec.stop_seconds
                while service.running and time.monotonic() - began < limit and self._signals <= max(asked, 1):
                    self._tick()
                    time.sleep(0.05)
                if service.running:
                    if not quickly:
                        self._report(f"{service.spec.name} did not stop in time and was killed", trouble=True)
                    service.kill()
        self._orphans.sweep(self._known_pids(), grace_seconds=0.0)

    def _stop_at_once(self) -> None:
        asked, services = self._signals, [watched.service for watched in self._watched]
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
            # A closed terminal often sends SIGHUP twice; that is no wish to end at once.
            self._signals = max(self._signals, 1) if number == signal.SIGHUP else self._signals + 1

        taken = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
            taken.append(signal.SIGHUP)
        previous = {number: signal.signal(number, count) for number in taken}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class ServiceLostError(RuntimeError):
    """A service died again and again. Not a mistake of the user: the log says what happened."""
