"""Device-hours: what the run holds in its surviving history, and what it ever spent.

    tick() --+--> state    the C of the curve; goes back with a checkpoint
             +--> spent    never falls; kept in the run folder, downtime included

Devices are counted while they are allocated, idle or not: GPUs, or CPU cores on a machine without.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

GENERATOR, TRAINER = "generator", "trainer"
ROLES = (GENERATOR, TRAINER)
SECONDS_PER_HOUR = 3_600.0
RESTART_SECONDS = 900.0
"""A longer absence is taken for a run that was stopped as a whole, generators included."""


@dataclass(slots=True)
class ComputeLedger:
    """Accumulates device-hours by role. `tick` is called often; the time between two calls counts with the devices
    that were allocated at its start."""

    path: Path
    """JSON file of what was spent; it survives restarts of the trainer."""
    wall_clock: Callable[[], float] = time.time
    state: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours of the surviving history."""
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours ever allocated."""
    _devices: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    _last: float = 0.0

    def start(self, trainer_devices: int, state: dict[str, float] | None, since: float | None = None) -> None:
        """Take up what was spent before; generators that stayed up while the trainer was away are counted as spent.

        `since`: when the trainer's devices were allocated, unix seconds; None = now.
        """
        now = self.wall_clock() if since is None else since
        if self.path.exists():
            earlier = json.loads(self.path.read_text())
            self.spent = {role: float(earlier["spent"][role]) for role in ROLES}
            away = max(0.0, now - float(earlier["at"]))
            if earlier.get("stopped") is not True and away <= RESTART_SECONDS:
                self.spent[GENERATOR] += away * int(earlier["devices"][GENERATOR]) / SECONDS_PER_HOUR
        if state is not None:
            self.state = {role: float(state[role]) for role in ROLES}
        self._devices[TRAINER] = trainer_devices
        self._last = now

    def tick(self, generator_devices: int) -> None:
        """Count the time since the last call."""
        now = self.wall_clock()
        hours = max(0.0, now - self._last) / SECONDS_PER_HOUR
        for role in ROLES:
            self.state[role] += hours * self._devices[role]
            self.spent[role] += hours * self._devices[role]
        self._devices[GENERATOR] = generator_devices
        self._last = now

    @property
    def total_state(self) -> float:
        """C: device-hours of generators and trainers together in the surviving history."""
        return sum(self.state.values())

    def save(self, *, stopped: bool = False) -> None:
        """Write what was spent. `stopped`: the whole run ends with this process, nothing stays allocated."""
        temporary = self.path.with_suffix(".tmp")
        record = {"spent": self.spent, "devices": self._devices, "at": self._last, "stopped": stopped}
        temporary.write_text(json.dumps(record) + "\n")
        temporary.replace(self.path)
