"""One destination's thread: reads the run folder, tells what is new, and waits where nobody takes it.

new entries? --yes--> write --taken--> position kept, next
     |                  |---refused--> each by itself; what is refused again is counted as dropped
     |                  '---away-----> again after a back-off; the entries wait, the run goes on
     '--no, and asked to stop--> close (and given up where the destination stays away)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.loggers.destination import Destination, RefusedError
from rollcast.loggers.entries import Entry
from rollcast.loggers.feed import Feed
from rollcast.runfolder.files import LOGGED
from rollcast.runfolder.records import LoggedRecord, as_json, read_record
from rollcast.runfolder.writing import make_folder, replace_json
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

LOOK_SECONDS = 1.0
MOST_AT_ONCE = 200
"""Entries of one write."""
MAX_BACKOFF_SECONDS = 30.0
LAST_TRIES = 3
"""Of a destination that is away when the run ends."""
log = get_logger()


class Forwarder(threading.Thread):
    """A daemon: a destination that hangs for ever keeps neither the process nor another destination.

    Attributes:
        done: everything is told, and the destination closed.
    """

    def __init__(self, kind: str, folder: Path, make: Callable[[str | None], Destination], exporter: Exporter) -> None:
        """`make`: the destination, of the id under which it knew the run before; None = it never did."""
        super().__init__(name=kind, daemon=True)
        self._kind = kind
        self._position = folder / LOGGED / f"{kind}.json"
        self._make = make
        self._exporter = exporter
        before = _read(self._position)
        self._run_id = before.run_id
        self._told = before.lines
        self._feed = Feed(folder, before.lines)
        self._waiting: list[Entry] = []
        self._destination: Destination | None = None
        self._asked = threading.Event()
        self._was_up: bool | None = None
        self._unreadable = 0
        self.done = False

    def stop(self) -> None:
        """Tell what is left, then end."""
        self._asked.set()

    def run(self) -> None:
        failures = 0
        while not self.done:
            stopping = self._asked.is_set()  # before the look: what is written after it is of a run that goes on
            try:
                told = self._turn()
                if stopping and not told:
                    self._close()
                self._note(up=True)
                failures, pause = 0, LOOK_SECONDS
            except Exception as error:  # of whatever library and network there is
                self._note(up=False, error=error)
                failures += 1
                pause = min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 5))
            if stopping and failures >= LAST_TRIES:
                return
            if stopping and failures:
                time.sleep(min(pause, LOOK_SECONDS))
            elif failures or not self._waiting:
                self._asked.wait(pause)

    def _close(self) -> None:
        if self._destination is not None:
            self._destination.close()
        self.done = True

    def _turn(self) -> bool:
        """Tell some of what waits; whether there was any. Raises what the destination raises while it is away."""
        if not self._waiting:
            self._waiting = self._feed.read()
            self._exporter.add(
                names.LOGGER_DROPPED,
                self._feed.num_unreadable - self._unreadable,
                logger=self._kind,
                reason="unreadable",
            )
            self._unreadable = self._feed.num_unreadable
        self._exporter.set(names.LOGGER_WAITING, len(self._waiting), logger=self._kind)
        if self._destination is None:
            self._open()
        if not self._waiting:
            return False
        batch = self._waiting[:MOST_AT_ONCE]
        self._write(batch)
        del self._waiting[: len(batch)]
        self._exporter.set(names.LOGGER_WAITING, len(self._waiting), logger=self._kind)
        if not self._waiting:
            self._told = self._feed.lines
            self._keep_position()
        return True

    def _open(self) -> None:
        made = self._make(self._run_id)
        try:
            made.open()
        finally:
            self._run_id = made.run_id  # of a run that was begun, whatever failed then
            self._keep_position()
        self._destination = made

    def _write(self, batch: Sequence[Entry]) -> None:
        assert self._destination is not None
        try:
            self._destination.write(batch)
        except RefusedError as error:
            if len(batch) > 1:
                for entry in batch:
                    self._write([entry])
                return
            self._drop("refused", 1)
            log.warning(
                "a record is refused and left out", logger=self._kind, step=batch[0].step, reason=str(error)[:300]
            )
            return
        self._exporter.add(names.LOGGER_TOLD, len(batch), logger=self._kind)
        self._drop("not_finite", sum(entry.num_left_out for entry in batch))

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._exporter.add(names.LOGGER_DROPPED, count, logger=self._kind, reason=reason)

    def _note(self, *, up: bool, error: Exception | None = None) -> None:
        self._exporter.set(names.LOGGER_UP, float(up), logger=self._kind)
        if up == self._was_up:
            return
        self._was_up = up
        if up:
            log.info("the run is logged", logger=self._kind, run_id=self._run_id)
        else:
            log.warning("the logger's destination is away; the run goes on", logger=self._kind, error=str(error)[:300])

    def _keep_position(self) -> None:
        try:
            make_folder(self._position.parent)
            replace_json(self._position, as_json(LoggedRecord(self._told, self._run_id)))
        except UserError as error:
            log.error("how far the run is logged cannot be kept; it may be told twice", error=str(error))


def _read(path: Path) -> LoggedRecord:
    try:
        return read_record(path, LoggedRecord)
    except (OSError, ValueError):
        return LoggedRecord({}, None)
