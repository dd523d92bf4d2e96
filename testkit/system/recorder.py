"""Groups as they come over Redis in a running system, each with its task."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import redis

from rollcast.rollouts.codec import decode_group, decode_task
from rollcast.rollouts.keys import Keys
from rollcast.wire.version import PolicyVersion
from testkit.system.harness import System


@dataclass(frozen=True)
class RecordedGroup:
    """An entry of :rollouts."""

    fields: dict[str, str]
    """All fields of the entry except the group."""
    newest: PolicyVersion
    """Published when it came, or by the step after: the trainer's books say no more."""
    task: bytes
    """The task that was dispatched."""
    group: bytes


class Recorder(threading.Thread):
    """Reads the entries of a run's streams as soon as they are written; a few are gone by then on a
    busy machine.
    """

    def __init__(self, system: System) -> None:
        super().__init__(daemon=True)
        self._system = system
        self._keys = Keys(system.settings["run"])
        self.tasks: dict[tuple[bytes, int], bytes] = {}
        """By sequence and incarnation: a trainer that comes back dispatches some again, and both
        may be answered."""
        self.groups: dict[bytes, dict[bytes, bytes]] = {}
        """Fields by stream id."""
        self.stopped = False

    def run(self) -> None:
        places: dict[Any, Any] = dict.fromkeys(
            (self._keys.tasks, self._keys.evals, self._keys.rollouts), "0"
        )
        with redis.Redis(port=self._system.redis_port) as client:
            while not self.stopped:
                try:
                    answer = client.xread(places, block=200)
                except redis.RedisError:  # a fault of Redis; the client connects again
                    time.sleep(0.2)
                    continue
                for stream, entries in answer:
                    places[stream.decode()] = entries[-1][0]
                    for entry_id, fields in entries:
                        if stream.decode() == self._keys.rollouts:
                            self.groups[entry_id] = fields
                        else:
                            incarnation = decode_task(fields[b"d"]).incarnation
                            self.tasks.setdefault((fields[b"s"], incarnation), fields[b"d"])

    def finish(self) -> list[RecordedGroup]:
        """The groups whose tasks were seen, in order."""
        self.stopped = True
        self.join(10)
        marks = read_publish_marks(self._system.lines("tasks.jsonl"))
        task_keys = {
            entry: (fields[b"s"], decode_group(fields[b"d"]).incarnation)
            for entry, fields in self.groups.items()
        }
        return [
            RecordedGroup(
                {name.decode(): value.decode() for name, value in fields.items() if name != b"d"},
                next((version for at, version in marks if at >= arrival(entry_id)), marks[-1][1]),
                self.tasks[task_keys[entry_id]],
                fields[b"d"],
            )
            for entry_id, fields in self.groups.items()
            if task_keys[entry_id] in self.tasks
        ]


def arrival(entry_id: bytes) -> float:
    """Unix seconds."""
    return int(entry_id.split(b"-")[0]) / 1000


def read_publish_marks(lines: list[dict[str, Any]]) -> list[tuple[float, PolicyVersion]]:
    """When each version was published at the latest, by the trainer's own books."""
    incarnation, marks = 1, [(0.0, PolicyVersion(1, 0))]
    for line in lines:
        if line["what"] == "resumed":
            incarnation = line["incarnation"]
        elif line["what"] == "step":
            marks.append((line["at"], PolicyVersion(incarnation, line["step"])))
    return marks
