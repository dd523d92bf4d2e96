"""Device-hours of the surviving history, and all device-hours that the run ever spent.

    tick() --+--> state    the C of the curve; goes back with a checkpoint
             +--> spent    never falls; kept in the run folder, downtime included

Devices are counted while they are allocated, idle or not: GPUs, or CPU cores if the machine has no
GPU. Time within a process is monotonic; the wall clock measures only how long there was no trainer.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.runfolder.records import ComputeRecord, as_json, read_record
from rollcast.runfolder.writing import replace_json
from rollcast.telemetry.logging import get_logger

GENERATOR = "generator"
TRAINER = "trainer"
ROLES = (GENERATOR, TRAINER)
TEACHER = "teacher"
"""Has an entry in runs with an endpoint that distils and whose devices are counted."""
SECONDS_PER_HOUR = 3_600.0
log = get_logger()


@dataclass(slots=True)
class ComputeLedger:
    """Accumulates device-hours by role. `tick` is called often; the time between two calls counts
    with the devices that were allocated at its start."""

    path: Path
    """JSON file of the device-hours spent; it survives restarts of the trainer."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    wall_clock: Callable[[], float] = time.time
    """Unix seconds, for times that another process reads."""
    state: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours of the surviving history."""
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Device-hours ever allocated."""
    teacher_devices: int = 0
    """Devices of a teacher's endpoint, allocated from the trainer's start to its end."""
    start_up: float = 0.0
    """Device-hours of the surviving history that earlier incarnations spent on start-up."""
    _starts_at: float | None = None
    """C when this incarnation began; None once its start-up is over."""
    _devices: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    _last: float = 0.0
    _since: float = -math.inf
    """Monotonic seconds. Earlier time of a generator is counted already, or not believed."""

    def start(
        self,
        trainer_devices: int,
        state: dict[str, float] | None,
        allocated_seconds: float = 0.0,
        *,
        start_up: float,
    ) -> None:
        """Continue the accounts; generators that stayed up while the trainer was away are counted
        as spent.

        `state`, `start_up`: of the checkpoint. `allocated_seconds`: how long the trainer's devices
        have been allocated. Raises UserError if the file of the accounts cannot be read.
        """
        # Devices are allocated from the start of the process, long before this call.
        start = self._last = self.clock() - allocated_seconds
        earlier = _read(self.path)
        # A longer absence of the trainer means that the whole run was stopped, generators included.
        # Also the most that a generator may claim to have waited for a trainer, since only its own
        # report shows it.
        max_restart_seconds = 900.0
        unseen = max_restart_seconds
        if earlier is not None:
            self.spent = _known_role_hours(earlier.spent)
            away = max(0.0, self.wall_clock() - allocated_seconds - earlier.at)
            unseen = min(away, max_restart_seconds)
            # The generators stayed up, and no trainer counted their devices meanwhile.
            if not earlier.stopped and away <= max_restart_seconds:
                for role in {GENERATOR, TEACHER} & earlier.devices.keys() & self.spent.keys():
                    self.spent[role] += away * earlier.devices[role] / SECONDS_PER_HOUR
                unseen = 0.0
        self._since = start - unseen
        if state is not None:
            self.state = _known_role_hours(state)
        self.start_up = start_up
        self._starts_at = self.total_state
        self._devices[TRAINER] = trainer_devices
        if self.teacher_devices:
            self._devices[TEACHER] = self.teacher_devices
            self.state.setdefault(TEACHER, 0.0)
            self.spent.setdefault(TEACHER, 0.0)

    def tick(self, generator_devices: int, new_devices: Sequence[float] = ()) -> None:
        """Count the time since the last call.

        `new_devices`: for each device that came since the last call, the seconds for which it has
        been allocated, by its own report. Two hours are believed, the longest start of an engine;
        of the time before the trainer began 15 minutes are, and no time that is counted already.
        """
        now_seconds = self.clock()
        hours = max(0.0, now_seconds - self._last) / SECONDS_PER_HOUR
        for role, devices in self._devices.items():
            self.state[role] += hours * devices
            self.spent[role] += hours * devices
        # Time that a generator may claim for the start of its engine before it announced itself;
        # more is not counted
        believed = [
            max(0.0, min(seconds, 7_200.0, now_seconds - self._since)) for seconds in new_devices
        ]
        if any(seconds > counted for seconds, counted in zip(new_devices, believed, strict=True)):
            log.info(
                "only a part of new generators' time is counted",
                reported=new_devices,
                counted=believed,
            )
        started = sum(believed) / SECONDS_PER_HOUR
        self.state[GENERATOR] += started
        self.spent[GENERATOR] += started
        if self._starts_at is None:
            self.start_up += started  # before the first rollouts everything is start-up, this too
        # The time until now has counted with the devices of the call before.
        self._devices[GENERATOR] = generator_devices
        self._last = now_seconds

    @property
    def total_state(self) -> float:
        """C: device-hours of generators, trainers and a counted teacher together in the surviving
        history.
        """
        return sum(self.state.values())

    @property
    def total_start_up(self) -> float:
        """The part of C that each incarnation spent before its first own rollouts came, and each
        later engine before it joined."""
        if self._starts_at is None:
            return self.start_up
        return min(self.start_up + self.total_state - self._starts_at, self.total_state)

    def rollouts_came(self) -> None:
        """Rollouts of this incarnation's weights came: from now on all device-hours count as
        learning.
        """
        self.start_up = self.total_start_up
        self._starts_at = None

    @property
    def num_devices(self) -> int:
        """Allocated now, by all roles."""
        return sum(self._devices.values())

    def save(self, *, stopped: bool = False) -> None:
        """Raises UserError if the disk refuses it.

        `stopped`: the run ends, so nothing stays allocated.
        """
        # When `tick` was last called: until then the hours are counted.
        at = self.wall_clock() - (self.clock() - self._last)
        replace_json(self.path, as_json(ComputeRecord(self.spent, self._devices, at, stopped)))


def _known_role_hours(hours: dict[str, float]) -> dict[str, float]:
    return {role: float(hours[role]) for role in (*ROLES, TEACHER) if role in hours}


def _read(path: Path) -> ComputeRecord | None:
    try:
        earlier = read_record(path, ComputeRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        sentence = f"folder: {path} cannot be read ({error.strerror}); fix the permissions"
        raise refused_by_the_world(error, sentence) from error
    except ValueError as error:
        raise _not_ours(path) from error
    if not (set(ROLES) <= earlier.spent.keys() and set(ROLES) <= earlier.devices.keys()):
        raise _not_ours(path)
    return earlier


def _not_ours(path: Path) -> UserError:
    return UserError(
        f"folder: {path} does not contain the device-hours spent; remove it, and they are counted "
        "from 0"
    )
