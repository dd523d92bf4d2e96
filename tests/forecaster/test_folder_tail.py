"""The newest lines of the run's folder, read from the end of files of any length."""

from __future__ import annotations

from pathlib import Path

from rollcast.forecaster.folder_tail import MAX_EVALUATIONS, MAX_SAMPLES_BYTES, FolderTail
from rollcast.recorded.recorded_index import IndexEntry, RecordedIndex
from rollcast.runfolder import files
from rollcast.runfolder.event_log import note
from rollcast.runfolder.records import as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.sampled_episodes import samples


def test_the_newest_samples_are_read_from_the_end_of_any_file(tmp_path: Path) -> None:
    path = tmp_path / files.SAMPLES
    tail = FolderTail("demo", tmp_path)
    assert tail.samples() == []
    assert tail.step() is None
    for step in range(12):
        append_line(path, as_json(samples(step)))
    assert [record.step for record in tail.samples()] == list(range(11, 11 - MAX_EVALUATIONS, -1))
    with path.open("ab") as file:
        file.write(b"no record\n" + b"x" * MAX_SAMPLES_BYTES + b"\n")
        file.write(b'{"step": 13, "unfinished')
    assert tail.samples() == []
    append_line(path, as_json(samples(14)))
    assert [record.step for record in tail.samples()] == [14]


def test_the_newest_events_come_first(tmp_path: Path) -> None:
    tail = FolderTail("demo", tmp_path)
    assert tail.events() == []
    for number in range(30):
        note(tmp_path, f"generator-{number} joined")
    assert [event.line for event in tail.events()] == [
        f"generator-{number} joined" for number in range(29, 9, -1)
    ]


def test_recorded_steps_are_those_of_the_index(tmp_path: Path) -> None:
    tail = FolderTail("demo", tmp_path)
    assert tail.recorded_steps() == (str(tmp_path), [])
    entries = [IndexEntry(f"step-{step}", step, [], 0.0, num_bytes=9) for step in (8, 12)]
    (tmp_path / "recorded").mkdir()
    RecordedIndex(entries).write(tmp_path)
    assert tail.recorded_steps() == (str(tmp_path), [8, 12])
    (tmp_path / "recorded" / "index.json").write_text("{}}")
    assert tail.recorded_steps() == (str(tmp_path), [])
