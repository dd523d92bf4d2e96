"""Event files, written by TensorBoard's own package; without torch or TensorFlow."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rollcast.loggers.entries import Entry, as_table


class TensorBoardFiles:
    """One event file for each process that writes; TensorBoard joins them."""

    run_id = None

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self._writer: Any = None

    def open(self) -> None:
        self._writer = EventFileWriter(str(self._folder))
        self._text("run", "```\n" + json.dumps(self._settings, indent=1) + "\n```", 0, 0.0)
        self._writer.flush()

    def write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.is_repeated:  # TensorBoard drops the lost history from this step on
                restart_mark = SessionLog(status=SessionLog.START)
                self._writer.add_event(
                    Event(wall_time=entry.at, step=entry.step, session_log=restart_mark)
                )
            if entry.numbers:
                values = [
                    Summary.Value(tag=name, simple_value=value)
                    for name, value in entry.numbers.items()
                ]
                self._writer.add_event(
                    Event(wall_time=entry.at, step=entry.step, summary=Summary(value=values))
                )
            for name, text in entry.texts.items():
                self._text(name, text, entry.step, entry.at)
            if entry.samples:
                self._text(
                    f"samples/{entry.samples_of}",
                    "\n".join(as_table(entry.samples)),
                    entry.step,
                    entry.at,
                )
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _text(self, name: str, text: str, step: int, at: float) -> None:
        self._writer.add_event(Event(wall_time=at, step=step, summary=text_pb(name, text)))
