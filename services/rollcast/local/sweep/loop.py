"""The loop of a sweep: choose -> let the chosen run train until its goal -> choose again.

choose while the run still trains -> the same run: it goes on, without a pause
                                  -> another run, or none: the run is paused
a run that fails by its own doing is tried again once, then left out with its reason; the sweep goes
on, and tries it once more when it is started again
a run that dies of anything else is tried again after a while; if one slice after the other ends so,
the sweep ends
SIGINT or SIGTERM: the run is paused, and the sweep goes on with the same command
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from rollcast.config.errors import PassingError
from rollcast.curves.columns.times import SECONDS_PER_HOUR
from rollcast.local.ablation import PlannedRun
from rollcast.local.sweep.choice import SweepChoice, SweepTerms, choose, is_reached
from rollcast.local.sweep.ledger import SliceOutcome, SweepLedger
from rollcast.runfolder.sweep_records import SliceEnding, SweepLine
from rollcast.scaling.law.curve import Curve

IsOver = Callable[[bool], bool]
"""Given whether the run has made a step since it was resumed: whether the slice is over."""


class SliceRunner(Protocol):
    """The machine or the cluster on which the runs of a sweep train."""

    def devices(self, item: PlannedRun) -> int:
        """Number of devices that the run holds while it trains."""

    def curve(self, item: PlannedRun) -> Curve | None:
        """Readings of the run over device-hours without start-ups; None before the first."""

    def device_hours(self, item: PlannedRun, seconds: float, earlier: float) -> float:
        """Spent in the slice that began `seconds` ago; `earlier`: in all slices of the run before.
        Time without devices, such as in a queue, does not count.
        """

    def lost_device_hours(self, item: PlannedRun, began_at: float, earlier: float) -> float:
        """Spent in a slice that began at this Unix time and in which the sweep was killed."""

    def run_slice(self, item: PlannedRun, is_over: IsOver) -> SliceOutcome:
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`on_choice`: called with each choice, once the ledger has it. `clock`, `sleep`:
        seconds.
        """
        self.terms = terms
        self.runner = runner
        self.ledger = ledger
        self.clock = clock
        self._sleep = sleep
        self._num_killed = 0
        """Slices in a row that ended with a death that was not the run's own."""
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
        ledger = self.ledger
        curves = {run: self.runner.curve(item) for run, item in self._runs.items()}

        def choose_without(left_out: Collection[str]) -> SweepChoice:
            return choose(
                self.terms,
                [item for run, item in self._runs.items() if run not in left_out],
                {run: curve for run, curve in curves.items() if curve is not None},
                spent_device_hours=ledger.device_hours + running_device_hours,
                pause_device_hours=pause_device_hours,
            )

        failed_runs = {run for run in self._runs if ledger.failure(run) is not None}
        retried = {run for run in failed_runs if ledger.is_retried(run)}
        choice = choose_without(failed_runs - retried)
        if choice.run is None and retried:
            choice = choose_without(failed_runs)  # nothing is left to try them with
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
        self.ledger.begin(run, goal)
        current = _Slice(self, item, goal)
        outcome = self.runner.run_slice(item, current.is_over)
        if current.is_overdue and outcome.ending is SliceEnding.PAUSED:
            error = f"took {current.device_hours:.3g} device-hours, more than a whole run"
            outcome = replace(outcome, ending=SliceEnding.FAILED, error=error)
        current.end(outcome)
        if current.error is not None:
            raise current.error
        if outcome.ending is SliceEnding.INTERRUPTED:
            return None
        if outcome.ending is SliceEnding.FAILED:
            is_final = self.ledger.failure(run) is not None
            fate = "left out of the sweep" if is_final else "it is tried again once"
            self._report(f"{run} failed: {outcome.error}; {fate}")
        self._wait_after_kills(run, outcome)
        if current.next_choice is None or current.next_choice.run is None:
            return self.choose()  # with the pause's cost
        return current.next_choice

    def _wait_after_kills(self, run: str, outcome: SliceOutcome) -> None:
        """Raises PassingError if slices end one after the other with a death from outside."""
        self._num_killed = self._num_killed + 1 if outcome.ending is SliceEnding.KILLED else 0
        if self._num_killed == 0:
            return
        # Five tries within eight minutes: a network or a disk in trouble may be well by then
        if self._num_killed == 5:
            raise PassingError(
                f"{run}: {outcome.error}; the last 5 slices ended like this, which is no fault of "
                "an arm; remove the cause, then give the same command"
            )
        seconds = 30.0 * 2 ** (self._num_killed - 1)
        self._report(f"{run} was ended: {outcome.error}; the sweep goes on in {seconds:.0f} s")
        self._sleep(seconds)

    def _close_lost_slice(self) -> None:
        """Count a slice in which the sweep was killed."""
        line = self.ledger.open_slice
        if line is None or line.run is None:
            return
        hours = 0.0
        if (item := self._runs.get(line.run)) is not None:
            earlier = self.ledger.run_device_hours(line.run)
            hours = self.runner.lost_device_hours(item, line.at, earlier)
        self.ledger.end(line.run, SliceOutcome(SliceEnding.LOST), hours)


class _Slice:
    """A slice that goes on. The next choice is made while its run still trains."""

    def __init__(self, loop: SweepLoop, item: PlannedRun, goal: float) -> None:
        self._loop = loop
        self._item = item
        self._goal = goal
        self._devices = loop.runner.devices(item)
        self._earlier = loop.ledger.run_device_hours(item.config.run)
        self._began = loop.clock()
        self._begin_compute = self._compute()
        self.device_hours = 0.0
        """Spent in the slice until the last look."""
        self._start_device_hours: float | None = None
        """Until the first step; None before it."""
        self.is_overdue = False
        self.next_choice: SweepChoice | None = None
        """The choice that ended the slice, if one did."""
        self.error: Exception | None = None
        """The failure to choose; the run is paused before it is raised."""

    def is_over(self, has_stepped: bool) -> bool:
        """Whether the run is to be paused: another one is chosen, or the budget is spent.

        `has_stepped`: whether it has made a step since it was resumed.
        """
        loop = self._loop
        self._look()
        if has_stepped and self._start_device_hours is None:
            self._start_device_hours = self.device_hours
        if loop.ledger.device_hours + self.device_hours >= loop.terms.budget:
            return True
        # A run that makes no readings must not take the whole budget: a whole run's time and half
        # an hour, which is the longest start of an engine
        if self.device_hours >= loop.terms.target + 0.5 * self._devices:
            self.is_overdue = True
            return True
        starts = [] if self._start_device_hours is None else [self._start_device_hours]
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

    def end(self, outcome: SliceOutcome) -> None:
        """Write its costs into the ledger, with those of its stop."""
        stop_device_hours = None
        with_stop = self.device_hours
        if outcome.stop_seconds is not None:
            stop_device_hours = outcome.stop_seconds * self._devices / SECONDS_PER_HOUR
            with_stop += stop_device_hours
        self._look()
        self._loop.ledger.end(
            self._item.config.run,
            outcome,
            max(self.device_hours, with_stop),
            self._start_device_hours,
            stop_device_hours,
        )

    def _look(self) -> None:
        seconds = self._loop.clock() - self._began
        self.device_hours = self._loop.runner.device_hours(self._item, seconds, self._earlier)

    def _compute(self) -> float:
        curve = self._loop.runner.curve(self._item)
        return 0.0 if curve is None else float(curve.compute[-1])
