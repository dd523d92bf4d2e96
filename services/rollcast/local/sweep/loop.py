"""The loop of a sweep: choose -> let the chosen run train until its goal -> choose again.

choose while the run still trains -> the same run: it goes on, without a pause
                                  -> another run, or none: the run is paused
a run that dies is tried again once, then left out with its reason; the sweep goes on
SIGINT or SIGTERM: the run is paused, and the sweep goes on with the same command
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rollcast.curves.columns.times import SECONDS_PER_HOUR
from rollcast.local.ablation import PlannedRun
from rollcast.local.sweep.choice import SweepChoice, SweepTerms, choose, is_reached
from rollcast.local.sweep.ledger import SliceOutcome, SweepLedger
from rollcast.runfolder.sweep_records import SliceEnding, SweepLine
from rollcast.scaling.law.curve import Curve

IsOver = Callable[[float | None], bool]
"""Given the seconds from the start to the first step, None before it: whether the slice is over."""


class SliceRunner(Protocol):
    """The machine or the cluster on which the runs of a sweep train."""

    def devices(self, item: PlannedRun) -> int:
        """Number of devices that the run holds while it trains."""

    def curve(self, item: PlannedRun) -> Curve | None:
        """Readings of the run over device-hours without start-ups; None before the first."""

    def last_sign(self, item: PlannedRun) -> float:
        """Unix seconds of the last trace of work that the run left; 0 without any."""

    def run_slice(self, item: PlannedRun, is_over: IsOver, max_seconds: float) -> SliceOutcome:
        """Start or resume the run, ask `is_over` about once a second, then pause it.

        Raises UserError if no other run could train here either, such as on a full disk.
        """


class SweepLoop:
    def __init__(
        self,
        terms: SweepTerms,
        planned: Sequence[PlannedRun],
        runner: SliceRunner,
        ledger: SweepLedger,
        *,
        report: Callable[[str], None],
        on_choice: Callable[[SweepChoice], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_choice`: called with each choice, once the ledger has it. `clock`: seconds."""
        self.terms = terms
        self.runner = runner
        self.ledger = ledger
        self.clock = clock
        self._runs = {item.config.run: item for item in planned}
        self._report = report
        self._on_choice = on_choice

    def run(self) -> SweepChoice | None:
        """The last choice, which ends the sweep; None if it was interrupted.

        Raises UserError if no run can train at all, such as on a full disk.
        """
        self._close_lost_slice()
        choice = self.choose()
        while choice.run is not None:
            next_choice = self._run_slice(choice.run, choice.goal)
            if next_choice is None:
                return None
            choice = next_choice
        return choice

    def choose(
        self, running_device_hours: float = 0.0, pause_device_hours: float | None = None
    ) -> SweepChoice:
        """`running_device_hours`: of the slice that has not ended. `pause_device_hours`: with the
        start of that slice; None = as the ledger has it.
        """
        if pause_device_hours is None:
            pause_device_hours = self.ledger.pause_device_hours()
        curves = {run: self.runner.curve(item) for run, item in self._runs.items()}
        choice = choose(
            self.terms,
            [item for run, item in self._runs.items() if self.ledger.failure(run) is None],
            {run: curve for run, curve in curves.items() if curve is not None},
            spent_device_hours=self.ledger.device_hours + running_device_hours,
            pause_device_hours=pause_device_hours,
        )
        self.ledger.append(
            SweepLine(
                "choice",
                time.time(),
                None if choice.run is None else choice.run.config.run,
                goal=choice.goal,
                gain=choice.gain,
                slice_share=choice.slice_share,
                chances=choice.chances,
            )
        )
        self._on_choice(choice)
        return choice

    def _run_slice(self, item: PlannedRun, goal: float) -> SweepChoice | None:
        """The choice after the slice; None if the sweep was asked to stop."""
        run = item.config.run
        devices = self.runner.devices(item)
        self.ledger.begin(run, goal)
        # A run that makes no readings must not take the whole budget: a whole run's time and half
        # an hour, which is the longest start of an engine
        max_seconds = self.terms.target / devices * SECONDS_PER_HOUR + 1_800.0
        current = _Slice(self, item, goal, devices)
        outcome = self.runner.run_slice(item, current.is_over, max_seconds)
        self.ledger.end(run, current.device_hours, devices, outcome)
        if current.error is not None:
            raise current.error
        if outcome.ending is SliceEnding.INTERRUPTED:
            return None
        if outcome.ending is SliceEnding.FAILED:
            is_final = self.ledger.failure(run) is not None
            fate = "left out of the sweep" if is_final else "it is tried again once"
            self._report(f"{run} failed: {outcome.error}; {fate}")
        if current.next_choice is None or current.next_choice.run is None:
            return self.choose()  # with the pause's cost
        return current.next_choice

    def _close_lost_slice(self) -> None:
        """Count a slice in which the sweep was killed until the last sign of its run."""
        line = self.ledger.open_slice
        if line is None or line.run is None:
            return
        hours = 0.0
        if (item := self._runs.get(line.run)) is not None:
            seconds = max(0.0, self.runner.last_sign(item) - line.at)
            hours = seconds * self.runner.devices(item) / SECONDS_PER_HOUR
        self.ledger.end(line.run, hours, 0, SliceOutcome(SliceEnding.LOST))


class _Slice:
    """A slice that goes on. The next choice is made while its run still trains."""

    def __init__(self, loop: SweepLoop, item: PlannedRun, goal: float, devices: int) -> None:
        self._loop = loop
        self._item = item
        self._goal = goal
        self._devices = devices
        self._began = loop.clock()
        self._begin_compute = self._compute()
        self.next_choice: SweepChoice | None = None
        """The choice that ended the slice, if one did."""
        self.error: Exception | None = None
        """The failure to choose; the run is paused before it is raised."""

    @property
    def device_hours(self) -> float:
        return self._device_hours(self._loop.clock() - self._began)

    def is_over(self, start_seconds: float | None) -> bool:
        """Whether the run is to be paused: another one is chosen, or the budget is spent.

        `start_seconds`: from the start to the first step; None before it.
        """
        loop = self._loop
        if loop.ledger.device_hours + self.device_hours >= loop.terms.budget:
            return True
        starts = [] if start_seconds is None else [self._device_hours(start_seconds)]
        pause_device_hours = loop.ledger.pause_device_hours(starts)
        least = loop.terms.min_slice_pauses * pause_device_hours
        goal = max(self._goal, min(self._begin_compute + least, loop.terms.target))
        if not is_reached(self._compute(), goal):
            return False
        try:
            choice = loop.choose(self.device_hours, pause_device_hours)
        except Exception as error:
            self.error = error
            return True
        if choice.run is self._item:
            self._goal = choice.goal
            return False
        self.next_choice = choice
        return True

    def _compute(self) -> float:
        curve = self._loop.runner.curve(self._item)
        return 0.0 if curve is None else float(curve.compute[-1])

    def _device_hours(self, seconds: float) -> float:
        return seconds * self._devices / SECONDS_PER_HOUR
