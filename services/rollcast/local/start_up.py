"""The progress of a run's start: the parts that are ready, and since when.

up writes the run file -> the trainer has read its model, an engine has started, side by side: each writes its port
                       -> a generator holds the trainer's weights -> the first optimizer step
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rollcast.connections.port_files import port_file, ports_of
from rollcast.runfolder.files import RUN_FILE

TRAINER = "trainer reads the model"
ENGINE = "engine starts"
WEIGHTS = "first weights"
STEP = "first step"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the start; Unix seconds."""

    name: str
    started_at: float | None
    """None = it waits for those before it."""
    done_at: float | None

    def seconds(self, now: float) -> float | None:
        """Duration, or the time so far; None if it has not begun."""
        return None if self.started_at is None else max(0.0, (self.done_at or now) - self.started_at)


class StartUp:
    """The phases of the newest start, read from when its files were written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready_at: float | None = None

    @property
    def began_at(self) -> float | None:
        """When the newest start wrote its run file; None if there is none."""
        return _written_at(self._folder / RUN_FILE)

    def phases(self, *, is_ready: bool, stepped_at: float | None) -> tuple[Phase, ...]:
        """`is_ready`: a generator samples with the trainer's weights. `stepped_at`: of the first step of this start."""
        began = self.began_at
        if began is None:
            return ()
        if is_ready and self._ready_at is None:
            self._ready_at = time.time()
        trainer = _since(began, [_written_at(port_file(self._folder, "trainer"))])
        engine = _since(began, map(_written_at, ports_of(self._folder).glob("generator-*")))
        both = None if trainer is None or engine is None else max(trainer, engine)
        ready = stepped_at if self._ready_at is None else self._ready_at
        return (
            Phase(TRAINER, began, trainer),
            Phase(ENGINE, began, engine),
            Phase(WEIGHTS, both, ready),
            Phase(STEP, ready, stepped_at),
        )


def _since(began: float, moments: Iterable[float | None]) -> float | None:
    return min((at for at in moments if at is not None and at >= began), default=None)


def _written_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
