"""Which faults each run gets: a pure function of a seed and the numbers of runs and faults."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

from testkit.chaos.faults import RUN_KINDS, SECONDS, Fault, RunKind, possible_faults


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: its number, its kind, and its faults in their order."""

    number: int
    kind: RunKind
    faults: tuple[Fault, ...]

    @property
    def name(self) -> str:
        return f"run-{self.number:03}-{self.kind.replace(' ', '-')}"


def make_schedule(
    seed: int, num_runs: int, faults_per_run: int, kinds: tuple[RunKind, ...] = RUN_KINDS
) -> list[PlannedRun]:
    """Kinds of run in turn, each with those of its faults that were drawn least so far.

    A longer schedule of the same seed begins with the shorter one, so that runs can be added.
    """
    generator = random.Random(seed)
    counts: Counter[str] = Counter()
    runs = []
    for number in range(num_runs):
        kind = kinds[number % len(kinds)]
        faults = []
        for _ in range(faults_per_run):
            possible = possible_faults(kind)
            fewest = min(counts[fault.name] for fault in possible)
            fault = generator.choice([one for one in possible if counts[one.name] == fewest])
            counts[fault.name] += 1
            faults.append(_with_duration(fault, generator))
        # Drawing by count alone would make the same fault twice in a row where few are possible
        generator.shuffle(faults)
        runs.append(PlannedRun(number, kind, tuple(faults)))
    return runs


def _with_duration(fault: Fault, generator: random.Random) -> Fault:
    if fault.kind not in SECONDS:
        return fault
    shortest, longest = SECONDS[fault.kind]
    return replace(fault, seconds=round(generator.uniform(shortest, longest), 1))
