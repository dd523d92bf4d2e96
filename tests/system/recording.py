"""Groups as they came over Redis in a real run with faults, each with its task: to be held against
every check again.

`python -m tests.system.recording FILE COUNT` makes such a run and writes so many of them down,
those that a fault touched first; tests/trainer/recorded_groups.xz is one.
"""

from __future__ import annotations

import json
import lzma
import signal
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rollcast.local.demo.base_model import ensure_base_model
from rollcast.rollouts.codec import decode_group
from rollcast.wire.version import PolicyVersion
from testkit.system.faults import count_joined, stop_holding_tasks
from testkit.system.harness import System, wait_for
from testkit.system.recorder import RecordedGroup, Recorder
from tests.system.conftest import SMALL, small_settings

_LENGTH = struct.Struct("<I")


def write(file: Path, groups: Iterable[RecordedGroup]) -> None:
    with lzma.open(file, "wb", preset=9 | lzma.PRESET_EXTREME) as stream:
        for item in groups:
            head = json.dumps({"fields": item.fields, "newest": item.newest}).encode()
            for part in (head, item.task, item.group):
                stream.write(_LENGTH.pack(len(part)) + part)


def read(file: Path) -> list[RecordedGroup]:
    data = lzma.decompress(file.read_bytes())

    def parts() -> Iterator[bytes]:
        start = 0
        while start < len(data):
            (length,) = _LENGTH.unpack_from(data, start)
            start += _LENGTH.size + length
            yield data[start - length : start]

    rest = parts()
    return [
        RecordedGroup(head["fields"], PolicyVersion(*head["newest"]), next(rest), next(rest))
        for head in map(json.loads, rest)
    ]


def run_with_faults(folder: Path, settings: dict[str, Any]) -> tuple[System, list[RecordedGroup]]:
    """A run in which a generator hands its tasks back, is killed, and the trainer is killed; the
    groups it made.
    """
    settings["budget"] = {"steps": 100_000}
    settings["generator"]["drain_seconds"] = 0
    with System(folder, settings) as system:
        recorder = Recorder(system)
        recorder.start()
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        for fault in ("drain", "kill", "restart", "drain"):
            wait_for(
                lambda: system.last_step > 0 and count_joined(system) == 2,
                300,
                "both generators in the run",
            )
            system.wait_step(system.last_step + 6, 300)
            if fault == "restart":
                system.kill("trainer")
                system.start_trainer(resume=True)
                wait_for(lambda: resumed(system), 300, "the new trainer")
                continue
            stop_holding_tasks(system, "g1")
            if fault == "drain":
                system.stopped_services.add("g1")
                system.processes["g1"].terminate()
                system.signal("g1", signal.SIGCONT)
                assert system.processes["g1"].wait(60) == 0
            else:
                system.kill("g1")
            system.start_generator("g1")
        system.wait_step(system.last_step + 6, 300)
        assert system.metrics("trainer")["rollcast_unreadable_total", ()] == 0
        system.terminate("trainer")
        return system, recorder.finish()


def touched_by_a_fault(item: RecordedGroup) -> bool:
    group = decode_group(item.group)
    return (
        bool(group.attempt or group.hand_backs)
        or len({version.incarnation for version in group.versions}) > 1
    )


def thinned(groups: list[RecordedGroup], count: int) -> list[RecordedGroup]:
    """In order: those that a fault touched, and as many of the others, evenly spread."""
    touched = [touched_by_a_fault(item) for item in groups]
    share = (count - sum(touched)) / max(1, len(groups) - sum(touched))
    return [
        item
        for number, (item, always) in enumerate(zip(groups, touched, strict=True))
        if always or int(share * (number + 1)) > int(share * number)
    ]


def resumed(system: System) -> bool:
    return any(line["what"] == "resumed" for line in system.lines("tasks.jsonl"))


def main(file: str, count: str) -> None:
    settings = small_settings(ensure_base_model(SMALL, lambda share: None))
    settings["recipe"]["rollouts_per_prompt"] = 2
    settings["tasks"]["evaluation"] |= {"rollouts_per_prompt": 1, "every_steps": 4}
    with tempfile.TemporaryDirectory() as folder:
        system, groups = run_with_faults(Path(folder), settings)
        assert "unusable group" not in system.log("trainer")
    kept = thinned(groups, int(count))
    write(Path(file), kept)
    print(
        f"{len(kept)} of {len(groups)} groups, {sum(map(touched_by_a_fault, kept))} touched by a "
        "fault"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
