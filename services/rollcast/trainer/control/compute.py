"""Device-hours: what the run holds in its surviving history, and what it ever spent.

    tick() --+--> state    the C of the curve; goes back with a checkpoint
             +--> spent    never falls; kept in the run folder, downtime included

Devices are counted while they are allocated, idle or not: GPUs, or CPU cores on a machine without. Within a process
time is told by a clock that nobody sets; the wall clock tells only how long there was no trainer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.runfolder.records import ComputeRecord, as_json, read_record
from rollcast.runfolder.writing import replace_json
from rollcast.telemetry.logging import get_logger

GENERATOR, TRAINER = "generator", "trainer"
ROLES = (GENERATOR, TRAINER)
SECONDS_PER_HOUR = 3_600.0
LONGEST_START_SECONDS = 7_200.0
"""Of an engine: a generator that says it was there for longer before it announced itself is believed so much."""
RESTART_SECONDS = 900.0
"""A longer absence is taken for a run that was stopped as a whole, generators included.

So long at most is a generator taken to have waited for a trainer: of that time there is only its word."""
log = get_logger()


@dataclass(slots=True)
class ComputeLedger:
    """Accumulates device-hours by role. `tick` is called often; the time between two calls counts with the devices
    that were allocated at its start."""

    path: Path
    """JSON file of what was spent; it survives restarts of the trainer."""
    clock: Callable[[], float] = time.monotonic
    """Of seconds that passed."""
    wall_clock: Callable[[], float] = time.time
    """Of moments that another process has to understand."""
    state: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours of the surviving history."""
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours ever allocated."""
    start_up: float | None = 0.0
    """Of the surviving history's, what earlier incarnations spent on starting up; None = not known of all of them."""
    _starts_at: float | None = None
    """C when this incarnation began; None once its start-up is over."""
    _devices: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    _last: float = 0.0
    _since: float = -math.inf
    """What a generator was allocated before is counted already, or not believed."""

    def start(
        self,
        trainer_devices: int,
        state: dict[str, float] | None,
        allocated_seconds: float = 0.0,
        *,
        start_up: float | None,
    ) -> None:
        """Take up what was spent before; generators that stayed up while the trainer was away are counted as spent.

        `state`, `start_up`: of the checkpoint. `allocated_seconds`: for how long the trainer's devices have been
        allocated by now.
        Raises UserError where the file of what was spent cannot be read.
        """
        start = self._last = self.clock() - allocated_seconds
        earlier = _read(self.path)
        unseen = RESTART_SECONDS
        if earlier is not None:
            self.spent = {role: earlier.spent[role] for role in ROLES}
            away = max(0.0, self.wall_clock() - allocated_seconds - earlier.at)
            unseen = min(away, RESTART_SECONDS)
            if not earlier.stopped and away <= RESTART_SECONDS:
                self.spent[GENERATOR] += away * earlier.devices[GENERATOR] / SECONDS_PER_HOUR
                unseen = 0.0
        self._since = start - unseen
        if state is not None:
            self.state = {role: float(state[role]) for role in ROLES}
        self.start_up = start_up
        self._starts_at = self.total_state
        self._devices[TRAINER] = trainer_devices

    def tick(self, generator_devices: int, new_devices: Sequence[float] = ()) -> None:
        """Count the time since the last call.

        `new_devices`: of those that came since the last call, seconds for which each has been allocated by now, as it
        says itself. Two hours are believed, as long as an engine may start; of the time before the trainer was there 15
        minutes, and none that is counted already.
        """
        now = self.clock()
        hours = max(0.0, now - self._last) / SECONDS_PER_HOUR
        for role in ROLES:
            self.state[role] += hours * self._devices[role]
            self.spent[role] += hours * self._devices[role]
        believed = [max(0.0, min(seconds, LONGEST_START_SECONDS, now - self._since)) for seconds in new_devices]
        if any(seconds > told for seconds, told in zip(new_devices, believed, strict=True)):
            log.info("of new generators' time only what follows is counted", said=new_devices, counted=believed)
        started = sum(believed) / SECONDS_PER_HOUR
        self.state[GENERATOR] += started
        self.spent[GENERATOR] += started
        if self.start_up is not None and self._starts_at is None:
            self.start_up += started  # before the first rollouts everything is start-up, this too
        self._devices[GENERATOR] = generator_devices
        self._last = now

    @property
    def total_state(self) -> float:
        """C: device-hours of generators and trainers together in the surviving history."""
        return sum(self.state.values())

    @property
    def total_start_up(self) -> float | None:
        """Of C, what each incarnation spent before its first own rollouts came, and each later engine before it joined.

        None = not known.
        """
        if self.start_up is None or self._starts_at is None:
            return self.start_up
        return min(self.start_up + self.total_state - self._starts_at, self.total_state)

    def rollouts_came(self) -> None:
        """Rollouts of this incarnation's weights are there: from now on what is spent is spent on learning."""
        self.start_up, self._starts_at = self.total_start_up, None

    @property
    def num_devices(self) -> int:
        """Allocated now, generators' and trainer's."""
        return sum(self._devices.values())

    def save(self, *, stopped: bool = False) -> None:
        """Write what was spent. `stopped`: the whole run ends with this process, nothing stays allocated.

        Raises UserError where the disk refuses it.
        """
        at = self.wall_clock() - (self.clock() - self._last)
        replace_json(self.path, as_json(ComputeRecord(self.spent, self._devices, at, stopped)))


def _read(path: Path) -> ComputeRecord | None:
    """What an earlier process wrote down last."""
    try:
        earlier = read_record(path, ComputeRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        sentence = f"folder: {path} cannot be read ({error.strerror}); mend the permissions"
        raise refused_by_the_world(error, sentence) from error
    except ValueError as error:
        raise _not_ours(path) from error
    if not (set(ROLES) <= earlier.spent.keys() and set(ROLES) <= earlier.devices.keys()):
        raise _not_ours(path)
    return earlier


def _not_ours(path: Path) -> UserError:
    return UserError(f"folder: {path} does not say what was spent; remove it, and what was spent before is not counted")
