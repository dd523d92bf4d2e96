"""The runs of a sweep on this machine: each is `rollcast up` until its slice is over, and `rollcast
up --resume` for the next slice.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.errors import PassingError, UserError, may_pass
from rollcast.curves.axis import make_curve, without_start_up
from rollcast.curves.columns.times import SECONDS_PER_HOUR
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.local.ablation import PlannedRun
from rollcast.local.checks import disk
from rollcast.local.checks.check import Start
from rollcast.local.devices import num_devices, usable_gpus, with_gpus
from rollcast.local.model_name import weight_bytes
from rollcast.local.status import RunStatus
from rollcast.local.supervisor import RunState, ServiceLostError
from rollcast.local.sweep.ledger import SliceOutcome
from rollcast.local.sweep.loop import IsOver
from rollcast.local.up import RunPausedError, View, run_locally
from rollcast.runfolder.files import COMPUTE, EVALUATIONS, STEPS
from rollcast.runfolder.folder import has_history
from rollcast.runfolder.sweep_records import SliceEnding
from rollcast.scaling.law.curve import Curve

MakeView = Callable[[PlannedRun, Callable[[RunStatus], None]], View]
"""The view of a run that calls back with its state some times a second."""


class DiskFullError(PassingError):
    """The disk of the sweep takes no more, which is no fault of the run that trains."""


@dataclass(slots=True)
class SliceWatch:
    """Notes when the run is asked to pause."""

    is_over: IsOver
    folder: Path
    pause_asked_at: float | None = None
    next_look: float = 0.0
    full_since: float | None = None

    def look(self, status: RunStatus) -> None:
        """Raises RunPausedError when the slice is over, DiskFullError if nothing can be written."""
        now_seconds = time.monotonic()
        if now_seconds < self.next_look:
            return
        self.next_look = now_seconds + 1.0
        self._look_at_disk(now_seconds)
        if self.is_over(status.is_started):
            self.pause_asked_at = now_seconds
            raise RunPausedError

    def _look_at_disk(self, now_seconds: float) -> None:
        # Free bytes below which nothing of use can be written
        if shutil.disk_usage(self.folder).free >= 64 << 10:
            self.full_since = None
            return
        self.full_since = self.full_since or now_seconds
        # Files that come and go fill a disk for a moment
        if now_seconds > self.full_since + 10.0:
            raise DiskFullError(
                f"no space is left on the disk of {self.folder}; free some, then give the same "
                "command"
            )


class LocalRuns:
    def __init__(self, make_view: MakeView) -> None:
        self._make_view = make_view
        self._curves: dict[Path, tuple[int, Curve | None]] = {}

    def devices(self, item: PlannedRun) -> int:
        config = item.config
        gpus = usable_gpus()[: config.local.gpus]
        return num_devices(with_gpus(config.local, gpus), config.generator)

    def curve(self, item: PlannedRun) -> Curve | None:
        """Read again when the run has written a further evaluation."""
        folder = item.config.run_folder
        try:
            size = (folder / EVALUATIONS).stat().st_size
        except OSError:
            return None
        if folder not in self._curves or self._curves[folder][0] != size:
            self._curves[folder] = (size, _read_curve(folder))
        return self._curves[folder][1]

    def device_hours(self, item: PlannedRun, seconds: float, earlier: float) -> float:
        """`up` holds the devices all the time."""
        return seconds * self.devices(item) / SECONDS_PER_HOUR

    def lost_device_hours(self, item: PlannedRun, began_at: float, earlier: float) -> float:
        """Until the last trace of work that the run left."""
        paths = [item.config.run_folder / name for name in (COMPUTE, STEPS, EVALUATIONS)]
        last_sign = max((path.stat().st_mtime for path in paths if path.exists()), default=began_at)
        return self.device_hours(item, max(0.0, last_sign - began_at), earlier)

    def run_slice(self, item: PlannedRun, is_over: IsOver) -> SliceOutcome:
        config = item.config
        watch = SliceWatch(is_over, config.run_folder)
        error = None
        try:
            run_state = run_locally(
                config,
                resume=has_history(config.run_folder),
                view=self._make_view(item, watch.look),
            )
            ending = (
                SliceEnding.INTERRUPTED if run_state is RunState.STOPPED else SliceEnding.PAUSED
            )
        except DiskFullError:
            raise
        except (UserError, ServiceLostError, OSError) as failure:
            _check_disk(item)
            ending = SliceEnding.KILLED if is_from_outside(failure) else SliceEnding.FAILED
            error = str(failure)
        ended = time.monotonic()
        return SliceOutcome(
            ending, None if watch.pause_asked_at is None else ended - watch.pause_asked_at, error
        )


def is_from_outside(failure: Exception) -> bool:
    """Whether a run died of a cause not its own. A disk that was full may have room again."""
    if "no space" in str(failure).lower():
        return True
    if isinstance(failure, ServiceLostError):
        return failure.is_from_outside
    return isinstance(failure, PassingError) or (isinstance(failure, OSError) and may_pass(failure))


def _check_disk(item: PlannedRun) -> None:
    """Raises UserError if the disk has no room for the run, which is no fault of the arm."""
    try:
        weight_bytes(item.config.model.path)
    except UserError:  # a model that is not there is one
        return
    disk.check(Start(item.config))


def _read_curve(folder: Path) -> Curve | None:
    """None before the first evaluation after the first step."""
    try:
        history, _, _ = history_of_folder(folder, None)
        return make_curve(history, without_start_up)[1]
    except ValueError:
        return None
