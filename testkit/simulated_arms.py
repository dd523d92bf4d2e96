"""Runs of a sweep whose curves are known: a place with a clock of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rollcast.config.run import parse_run_config
from rollcast.local.ablation import PlannedRun, Variant, plan
from rollcast.local.sweep.choice import SweepChoice, SweepTerms
from rollcast.local.sweep.ledger import SliceOutcome, SweepLedger
from rollcast.local.sweep.loop import IsOver, SweepLoop
from rollcast.runfolder.sweep_records import SliceEnding
from rollcast.scaling.law.curve import Curve

DEVICES = 2
START_SECONDS = 30.0
STOP_SECONDS = 6.0
EVALUATION_SECONDS = 36.0
"""Training between two evaluations: 0.02 device-hours."""


class KilledError(BaseException):
    """The end of the sweep's process, as by kill -9: nothing behind it runs."""


class SimulatedArms:
    """Each run climbs to the ceiling of its arm; readings scatter by 0.01."""

    def __init__(self, ceilings: dict[str, float]) -> None:
        self.ceilings = ceilings
        self.now_seconds = 0.0
        self.readings: dict[str, list[float]] = {}
        self.slices: list[tuple[str, float, float]] = []
        """Run, and its compute at the slice's begin and end."""
        self.deaths: dict[str, int] = {}
        """Run -> how many of its next slices end with its failure."""
        self.kills: dict[str, int] = {}
        """Run -> how many of its next slices end with a death from outside."""
        self.waits: list[float] = []
        self.interrupt_after: int | None = None
        self.kill_after: int | None = None
        """Evaluations of all runs until then."""

    def clock(self) -> float:
        return self.now_seconds

    def devices(self, item: PlannedRun) -> int:
        return DEVICES

    def device_hours(self, item: PlannedRun, seconds: float, earlier: float) -> float:
        return seconds * DEVICES / 3600.0

    def lost_device_hours(self, item: PlannedRun, began_at: float, earlier: float) -> float:
        return 0.0

    def compute(self, run: str) -> float:
        return len(self.readings.get(run, [])) * EVALUATION_SECONDS * DEVICES / 3600.0

    def curve(self, item: PlannedRun) -> Curve | None:
        rates = self.readings.get(item.config.run, [])
        if not rates:
            return None
        step = EVALUATION_SECONDS * DEVICES / 3600.0
        return Curve.from_points(
            [step * number for number in range(1, len(rates) + 1)],
            rates,
            np.full(len(rates), 0.01),
            initial=0.1,
        )

    def sleep(self, seconds: float) -> None:
        self.now_seconds += seconds
        self.waits.append(seconds)

    def run_slice(self, item: PlannedRun, is_over: IsOver) -> SliceOutcome:
        run = item.config.run
        self.now_seconds += START_SECONDS
        for deaths, ending in (
            (self.deaths, SliceEnding.FAILED),
            (self.kills, SliceEnding.KILLED),
        ):
            if deaths.get(run, 0):
                deaths[run] -= 1
                return SliceOutcome(ending, error="its GPU is gone")
        rates = self.readings.setdefault(run, [])
        begin = self.compute(run)
        random = np.random.default_rng([item.config.seed, len(run), len(rates)])
        while not is_over(True):
            self.now_seconds += EVALUATION_SECONDS
            rise = 1.0 - np.exp(-(len(rates) + 1) / 15.0)
            ceiling = self.ceilings[item.variant.name]
            rates.append(float(0.1 + (ceiling - 0.1) * rise + 0.01 * random.standard_normal()))
            total = sum(map(len, self.readings.values()))
            if total == self.kill_after:
                raise KilledError
            if total == self.interrupt_after:
                self.now_seconds += STOP_SECONDS
                return SliceOutcome(SliceEnding.INTERRUPTED)
        self.now_seconds += STOP_SECONDS
        self.slices.append((run, begin, self.compute(run)))
        return SliceOutcome(SliceEnding.PAUSED, STOP_SECONDS)


def plan_arms(folder: Path, names: list[str], num_seeds: int = 1) -> list[PlannedRun]:
    settings = {"run": "s", "model": {"path": "m"}, "budget": {"endless": True}}
    base = parse_run_config(settings, source="test")
    rows = [Variant(name, name, {}) for name in names]
    return plan(base, rows, num_seeds=num_seeds, folder=folder, with_whole=False)


def make_terms(num_arms: int, share: float, **changes: float) -> SweepTerms:
    """A whole run is one device-hour: fifty evaluations."""
    values = {"slice": 0.05, "min_slice_pauses": 0.0, "pause_below": 0.05, "least_gain": 0.0}
    return SweepTerms(target=1.0, budget=share * num_arms, **(values | changes))


def make_loop(
    arms: SimulatedArms, folder: Path, terms: SweepTerms, num_seeds: int = 1
) -> tuple[SweepLoop, list[str], list[SweepChoice]]:
    """The loop as a new process begins it, its reports and choices."""
    folder.mkdir(exist_ok=True)
    lines: list[str] = []
    choices: list[SweepChoice] = []
    loop = SweepLoop(
        terms,
        plan_arms(folder, list(arms.ceilings), num_seeds),
        arms,
        SweepLedger.open(folder),
        report=lines.append,
        on_choice=choices.append,
        clock=arms.clock,
        sleep=arms.sleep,
    )
    return loop, lines, choices
