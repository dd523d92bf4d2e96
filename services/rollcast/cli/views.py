"""How a run is shown while it goes on: a dashboard on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.cli.dashboard import MAX_EVENTS, render
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.curves.left_out import counted
from rollcast.local.frozen_forecast import freeze
from rollcast.local.status import RunStatus, StatusReader
from rollcast.local.up import View

REFRESH_SECONDS = 1.0


class Follower:
    """Reads the run's state once a second, and says what is new in it."""

    def __init__(self) -> None:
        self._reader: StatusReader | None = None
        self._config: RunConfig | None = None
        self._known: set[tuple[int, int]] = set()
        self._page_told = False
        self._is_failure_told = False
        self._num_skipped_told = 0
        self._next_at = 0.0
        self.status = RunStatus()
        self.page: str | None = None

    def begin(self, config: RunConfig) -> None:
        """`config` is the resolved one of a run whose folder is prepared."""
        self._config = config
        self._reader = StatusReader(config)

    def news(self) -> list[str]:
        """Lines about what happened since the last call."""
        now = time.monotonic()
        if self._reader is None or self._config is None or now < self._next_at:
            return []
        self._next_at = now + REFRESH_SECONDS
        self.status = self._reader.read()
        lines = []
        self.page = self._reader.url("forecaster") or self.page
        if self.page and not self._page_told:
            self._page_told = True
            lines.append(f"live page: {self.page}")
        for point in self.status.evaluations:
            if (point.incarnation, point.step) not in self._known:
                self._known.add((point.incarnation, point.step))
                error = "" if point.standard_error is None else f" ± {point.standard_error:.3f}"
                lines.append(
                    f"step {point.step}: pass rate {point.pass_rate:.3f}{error} "
                    f"at {point.compute_device_hours:.4f} device-hours"
                )
        if (skipped := self._reader.num_skipped) > self._num_skipped_told:
            self._num_skipped_told = skipped
            lines.append(f"{counted(skipped, 'line')} of the run's files left out, no JSON object")
        return lines + self._freeze(self._config.run_folder)

    def _freeze(self, folder: Path) -> list[str]:
        """At half of the budget; what keeps it from being written is told once and tried again."""
        try:
            frozen = freeze(folder, self.status)
        except UserError as error:
            told, self._is_failure_told = self._is_failure_told, True
            return [] if told else [str(error)]
        return [] if frozen is None else [frozen.sentence()]


class PlainView:
    """One line for each thing that happens."""

    def __init__(self) -> None:
        self._follower = Follower()

    def begin(self, config: RunConfig) -> None:
        self._follower.begin(config)

    def report(self, line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    def tick(self) -> None:
        for line in self._follower.news():
            self.report(line)


class Dashboard:
    """The same, redrawn in place."""

    def __init__(self) -> None:
        from rich.live import Live

        self._config: RunConfig | None = None
        self._follower = Follower()
        self._events: list[str] = []
        self._live = Live(auto_refresh=False)

    def __enter__(self) -> Dashboard:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(self, config: RunConfig) -> None:
        self._config = config
        self._follower.begin(config)

    def report(self, line: str) -> None:
        self._events = [*self._events, f"{time.strftime('%H:%M:%S')} {line}"][-MAX_EVENTS:]
        self._draw()

    def tick(self) -> None:
        for line in self._follower.news():
            self.report(line)
        self._draw()

    def _draw(self) -> None:
        if self._config is not None:
            view = render(self._config, self._follower.status, self._events, self._follower.page)
            self._live.update(view, refresh=True)


@contextmanager
def make_view() -> Iterator[View]:
    """A dashboard where standard output is a terminal."""
    if sys.stdout.isatty():
        with Dashboard() as view:
            yield view
    else:
        yield PlainView()


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Shows a share of work done, if any is reported: a bar on a terminal, else one line at the start."""
    if not sys.stdout.isatty():
        told = False

        def tell(_: float) -> None:
            nonlocal told
            if not told:
                told = True
                print(f"{title} ...", flush=True)

        yield tell
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(title, total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=True)
