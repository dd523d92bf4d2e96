"""One destination's thread: reads the run folder, sends new entries, and waits while the
destination is away.

new entries? --yes--> write --taken--> position kept, next
     |                  |---refused--> each by itself; refused again: counted as dropped
     |                  '---away-----> again after a back-off; the entries wait, the run goes on
     '--no, and asked to stop--> close (and give up if the destination stays away)
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.loggers.entries import Destination, Entry, RefusedError
from rollcast.loggers.feed import Feed
from rollcast.runfolder.files import LOGGED
from rollcast.runfolder.records import LoggedRecord, as_json, read_record
from rollcast.runfolder.writing import make_folder, replace_json
from rollcast.telemetry import logger_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

READ_INTERVAL_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 30.0
log = get_logger()


class Forwarder(threading.Thread):
    """A daemon thread: a destination that hangs blocks neither the process nor another destination.

    Attributes:
        done: all entries are sent, and the destination is closed.
    """

    def __init__(
        self, kind: str, folder: Path, make: Callable[[str | None], Destination], exporter: Exporter
    ) -> None:
        """`make`: opens the destination, given its id of the run
        from an earlier process, or None.
        """
        super().__init__(name=kind, daemon=True)
        self._kind = kind
        self._position = folder / LOGGED / f"{kind}.json"
        self._make = make
        self._exporter = exporter
        saved_position = _read(self._position)
        self._run_id = saved_position.run_id
        self._sent_lines = saved_position.lines
        self._feed = Feed(folder, saved_position.lines)
        self._waiting: list[Entry] = []
        self._destination: Destination | None = None
        self._stop_requested = threading.Event()
        self._was_up: bool | None = None
        self._unreadable = 0
        self.done = False

    def stop(self) -> None:
        """Send the remaining entries, then end."""
        self._stop_requested.set()

    def run(self) -> None:
        failures = 0
        while not self.done:
            # Before the reading: a record written after it belongs to a run that goes on.
            stopping = self._stop_requested.is_set()
            try:
                has_sent = self._send_some()
                if stopping and not has_sent:
                    self._close()
                self._note(up=True)
                failures = 0
                pause = READ_INTERVAL_SECONDS
            except Exception as error:  # of any library or network
                self._note(up=False, error=error)
                failures += 1
                pause = min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 5))
            # Tries of a destination that is away when the run ends
            if stopping and failures >= 3:
                return
            if stopping and failures:
                time.sleep(min(pause, READ_INTERVAL_SECONDS))
            elif failures or not self._waiting:
                self._stop_requested.wait(pause)

    def _close(self) -> None:
        if self._destination is not None:
            self._destination.close()
        self.done = True

    def _send_some(self) -> bool:
        """Send some of the waiting entries; returns whether there were any.

        Raises if the destination is away.
        """
        if not self._waiting:
            self._waiting = self._feed.read()
            unreadable = self._feed.num_unreadable - self._unreadable
            self._exporter.add(
                logger_metrics.LOGGER_DROPPED, unreadable, logger=self._kind, reason="unreadable"
            )
            self._unreadable = self._feed.num_unreadable
        self._exporter.set(logger_metrics.LOGGER_WAITING, len(self._waiting), logger=self._kind)
        if self._destination is None:
            self._open()
        if not self._waiting:
            return False
        # Entries of one request: services bound their size
        batch = self._waiting[:200]
        self._write(batch)
        del self._waiting[: len(batch)]
        self._exporter.set(logger_metrics.LOGGER_WAITING, len(self._waiting), logger=self._kind)
        if not self._waiting:
            self._sent_lines = self._feed.lines
            self._keep_position()
        return True

    def _open(self) -> None:
        destination = self._make(self._run_id)
        try:
            destination.open()
        finally:
            self._run_id = destination.run_id  # also if `open` failed after it created the run
            self._keep_position()
        self._destination = destination

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
            reason = str(error)[:300]
            log.warning(
                "a record is refused and left out",
                logger=self._kind,
                step=batch[0].step,
                reason=reason,
            )
            return
        self._exporter.add(logger_metrics.LOGGER_TOLD, len(batch), logger=self._kind)
        self._drop("not_finite", sum(entry.num_left_out for entry in batch))

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._exporter.add(
                logger_metrics.LOGGER_DROPPED, count, logger=self._kind, reason=reason
            )

    def _note(self, *, up: bool, error: Exception | None = None) -> None:
        self._exporter.set(logger_metrics.LOGGER_UP, float(up), logger=self._kind)
        if up == self._was_up:
            return
        self._was_up = up
        if up:
            log.info("the run is logged", logger=self._kind, run_id=self._run_id)
        else:
            log.warning(
                "the logger's destination is away; the run goes on",
                logger=self._kind,
                error=str(error)[:300],
            )

    def _keep_position(self) -> None:
        try:
            make_folder(self._position.parent)
            replace_json(self._position, as_json(LoggedRecord(self._sent_lines, self._run_id)))
        except UserError as error:
            log.error(
                "the logger's position cannot be kept; entries may be sent twice", error=str(error)
            )


def _read(path: Path) -> LoggedRecord:
    try:
        return read_record(path, LoggedRecord)
    except (OSError, ValueError):
        return LoggedRecord({}, None)
