"""How a run is shown while it goes on: a picture on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rollcast.cli.screen import figures
from rollcast.cli.screen.panel import Screen, panel
from rollcast.cli.verifier_news import VerifierNews
from rollcast.config.errors import UserError
from rollcast.config.printable import one_line
from rollcast.config.run import RunConfig
from rollcast.curves.amounts import format_count, incomplete_points
from rollcast.local.disk_watch import DiskWatch
from rollcast.local.frozen_forecast import freeze
from rollcast.local.status import RunStatus, StatusReader
from rollcast.local.supervisor import EventReport, RunState
from rollcast.local.up import View
from rollcast.recipe.group_signal import why_none_is_used
from rollcast.runfolder.episode_losses import read_losses
from rollcast.runfolder.event_log import RunEvent, note
from rollcast.runfolder.records import EvaluationRecord

REFRESH_SECONDS = 1.0
PROGRESS_SECONDS = 30.0
"""Shortest interval between two progress lines, if there is no terminal."""
WARNING = "warning: "
"""Before what went wrong while the run goes on; "error:" is for what ends it."""


class Follower:
    """Reads the run's state once a second, and reports the changes."""

    def __init__(self, config: RunConfig) -> None:
        """`config` is the resolved one of a run whose folder is prepared."""
        self.config = config
        self.status = RunStatus()
        self.page: str | None = None
        self._reader = StatusReader(config)
        self._verifiers = VerifierNews(config.run_folder)
        self._disk = DiskWatch(config.run_folder)
        self._reported_losses: dict[str, int] = {}
        self._earlier = self._reader.read().evaluations  # of starts before this one: no news
        self._reported_evaluations = {(point.incarnation, point.step) for point in self._earlier}
        self._phases_told: set[str] = set()
        self._is_failure_told = False
        self._is_unused_told = False
        self._num_skipped_told = 0
        self._num_incomplete_told = 0
        self._next_at = 0.0

    def tell(self, report: EventReport) -> None:
        """Report what happened since the last call, what went wrong first."""
        for line in self._troubles():
            report(line, trouble=True)
        for line in self.news():
            report(line)

    def _troubles(self) -> list[str]:
        """A disk that is full, and what verifiers fail at; as often as there is news."""
        if time.monotonic() < self._next_at:
            return []
        return [
            *self._disk.lines(),
            *self._verifiers.lines(),
            *self._loss_lines(),
            *self._unused_lines(),
        ]

    def _loss_lines(self) -> list[str]:
        """Environments that lose episodes, whenever the trainer has written a larger number."""
        news = [
            loss
            for loss in read_losses(self.config.run_folder)
            if loss.num_lost > self._reported_losses.get(loss.environment, 0)
        ]
        self._reported_losses |= {loss.environment: loss.num_lost for loss in news}
        return [loss.sentence() for loss in news]

    def _unused_lines(self) -> list[str]:
        """Why none of the first groups can be trained on, once; the counts go on next to the phases
        of the start.
        """
        if self._is_unused_told or self.status.is_started:
            return []
        sentence = why_none_is_used(self.status.group_signals, self.config.recipe)
        self._is_unused_told = sentence is not None
        return [] if sentence is None else [sentence]

    def news(self) -> list[str]:
        """Lines about what happened since the last call."""
        now_seconds = time.monotonic()
        if now_seconds < self._next_at:
            return []
        self._next_at = now_seconds + REFRESH_SECONDS
        status = self._reader.read()
        # The forecaster ends before the last picture is drawn: keep its last forecast.
        self.status = status if status.forecast else replace(status, forecast=self.status.forecast)
        lines = [*self._resumed_lines(), *self._start()]
        page = self._reader.url("forecaster") or self.page
        if page and self.page is None:
            lines.append(f"live page: {page}")
        self.page = page
        for point in self.status.evaluations:
            if (point.incarnation, point.step) not in self._reported_evaluations:
                self._reported_evaluations.add((point.incarnation, point.step))
                lines.append(_in_words(point))
        if (incomplete := self.status.num_incomplete) > self._num_incomplete_told:
            self._num_incomplete_told = incomplete
            lines.append(f"{incomplete_points(incomplete)} left out of curve and forecast")
        if (skipped := self._reader.num_skipped) > self._num_skipped_told:
            self._num_skipped_told = skipped
            lines.append(
                f"{format_count(skipped, 'line')} of the run's files left out, no JSON object"
            )
        return lines + self._freeze(self.config.run_folder)

    def _resumed_lines(self) -> list[str]:
        """The evaluations of earlier starts that are kept, once: the trainer reports at which step
        it continues.
        """
        if not self._earlier or not self.status.is_started:
            return []
        earlier = [point for point in self._earlier if point in self.status.evaluations]
        self._earlier = ()
        if not earlier:
            return []
        return [
            f"resumed with {format_count(len(earlier), 'evaluation')} of before, the last at "
            f"{_in_words(earlier[-1])}"
        ]

    def _start(self) -> list[str]:
        """Each phase of the start, once, when it is through."""
        done = [
            phase
            for phase in self.status.phases
            if phase.done_at is not None and phase.name not in self._phases_told
        ]
        self._phases_told |= {phase.name for phase in done}
        return [figures.phase_words(phase, time.time()) for phase in done]

    def _freeze(self, folder: Path) -> list[str]:
        """Freeze the forecast at half of the budget; a failure to write it is reported once, and
        tried again.
        """
        try:
            frozen = freeze(folder, self.status)
        except UserError as error:
            is_reported = self._is_failure_told
            self._is_failure_told = True
            return [] if is_reported else [str(error)]
        return [] if frozen is None else [frozen.sentence()]


def _in_words(point: EvaluationRecord) -> str:
    compute = f"{point.compute_device_hours:.4f} device-hours"
    return f"step {point.step}: {figures.reading_words(point)} at {compute}"


class PlainView:
    """One line for each thing that happens, and now and then one on how far the run is."""

    def __init__(self) -> None:
        self._follower: Follower | None = None
        self._progress_at = time.monotonic() + PROGRESS_SECONDS

    def begin(self, config: RunConfig) -> None:
        self._follower = Follower(config)

    def report(self, line: str, *, trouble: bool = False) -> None:
        self._progress_at = time.monotonic() + PROGRESS_SECONDS
        at = (
            time.strftime("%H:%M:%S")
            if self._follower is None
            else note(self._follower.config.run_folder, line, trouble=trouble).local_time
        )
        print(f"{at} {WARNING if trouble else ''}{one_line(line)}", flush=True)

    def tick(self, run_state: RunState = RunState.RUNNING) -> None:
        assert self._follower is not None
        self._follower.tell(self.report)
        if run_state is RunState.RUNNING and time.monotonic() >= self._progress_at:
            self._progress_at = time.monotonic() + PROGRESS_SECONDS
            progress = self._progress(self._follower.config.budget.steps, self._follower.status)
            print(f"{time.strftime('%H:%M:%S')} {progress}", flush=True)

    @staticmethod
    def _progress(budget_steps: int | None, status: RunStatus) -> str:
        now_seconds = time.time()
        if not status.is_started:
            waited_for = [
                figures.phase_words(phase, now_seconds)
                for phase in status.phases
                if phase.done_at is None
            ]
            return ", ".join([*waited_for, *figures.came_back(status)]) or "starting"
        return ", ".join(
            [figures.step_words(budget_steps, status), *figures.coming(status, now_seconds)]
        )


class LivePicture:
    """The same, redrawn in place."""

    def __init__(self) -> None:
        from rich.live import Live

        self._follower: Follower | None = None
        # More than any screen shows
        self._events: deque[RunEvent] = deque(maxlen=50)
        self._began_at = self._since = time.time()
        self._run_state = RunState.RUNNING
        self._next_at = 0.0
        self._live = Live(auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> "LivePicture":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, config: RunConfig) -> None:
        self._began_at = self._since = time.time()
        self._follower = Follower(config)

    def report(self, line: str, *, trouble: bool = False) -> None:
        if self._follower is None:
            self._live.console.print(line, markup=False, highlight=False)
            return
        self._events.append(note(self._follower.config.run_folder, line, trouble=trouble))
        self._draw()

    def tick(self, run_state: RunState = RunState.RUNNING) -> None:
        changed = run_state is not self._run_state
        if changed:
            self._run_state = run_state
            self._since = time.time()
        assert self._follower is not None
        self._follower.tell(self.report)
        if changed or time.monotonic() >= self._next_at:
            self._draw()

    def _draw(self) -> None:
        assert self._follower is not None
        self._next_at = time.monotonic() + REFRESH_SECONDS
        now_seconds = time.time()
        status = self._follower.status
        if self._run_state is not RunState.RUNNING:  # nothing more is due
            status = replace(status, pace=None)
        is_over = self._run_state in (RunState.FINISHED, RunState.STOPPED)
        if is_over and status.forecast is not None:  # its advice was on a rest that is over
            status = replace(status, forecast=replace(status.forecast, advice=None))
        size = self._live.console.size
        screen = Screen(
            self._follower.config,
            status,
            self._events,
            self._state(now_seconds, is_started=status.is_started),
            self._follower.page,
            now_seconds,
            is_running=not is_over,
        )
        # The line below the picture is the cursor's: with a whole screen of lines the terminal
        # would scroll.
        self._live.update(panel(screen, size.width, size.height - 1), refresh=True)

    def _state(self, now_seconds: float, *, is_started: bool) -> str:
        match self._run_state:
            case RunState.RUNNING:
                word = "running" if is_started else "starting"
                return f"{word} for {figures.duration(now_seconds - self._began_at)}"
            case RunState.STOPPING:
                return f"stopping for {figures.duration(now_seconds - self._since)}"
            case RunState.FINISHED | RunState.STOPPED | RunState.PAUSED:
                return f"{self._run_state} after {figures.duration(now_seconds - self._began_at)}"


def has_screen() -> bool:
    """Whether standard output can be drawn on: a terminal that moves its cursor and knows the
    letters of a picture.
    """
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return (
        sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
        and encoding == "utf8"
    )


@contextmanager
def make_view() -> Iterator[View]:
    """A picture where standard output is a terminal."""
    if has_screen():
        with LivePicture() as view:
            yield view
    else:
        yield PlainView()


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Shows a share of work done, if any is reported: a bar on a terminal, else one line at the
    start.
    """
    if not sys.stdout.isatty():
        is_announced = False

        def tell(_: float) -> None:
            nonlocal is_announced
            if not is_announced:
                is_announced = True
                print(f"{title} ...", flush=True)

        yield tell
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(title, total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=True)
