"""Loggers read the run folder as every other reader does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.loggers.feed import Feed
from rollcast.runfolder import files
from rollcast.runfolder.folder import NEWEST_FORMAT
from tests.loggers.told_run import STEPS, write_run, write_steps


def test_a_folder_of_a_later_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / files.FORMAT).write_text(f'{{"format": {NEWEST_FORMAT + 1}}}')
    with pytest.raises(
        UserError,
        match=(
            f"is written in format {NEWEST_FORMAT + 1}, this Rollcast knows {NEWEST_FORMAT} at most"
        ),
    ):
        Feed(tmp_path, {})


def test_what_was_told_or_counted_by_the_process_before_is_neither_again(tmp_path: Path) -> None:
    write_run(tmp_path)
    with (tmp_path / files.STEPS).open("a") as file:
        file.write("torn\n")
    first = Feed(tmp_path, {})
    assert first.read()
    assert first.num_unreadable == 1
    second = Feed(tmp_path, first.lines)
    assert (second.read(), second.num_unreadable, second.lines) == ([], 0, first.lines)
    write_steps(tmp_path, range(3, 5))
    assert [(entry.step, entry.is_repeated) for entry in second.read()] == [(3, True), (4, False)]


def test_a_file_that_was_written_anew_is_told_from_its_beginning(tmp_path: Path) -> None:
    write_run(tmp_path)
    known = {files.STEPS: len(STEPS)}
    feed = Feed(tmp_path, known)
    assert not any(name.startswith("train/") for entry in feed.read() for name in entry.numbers)
    (tmp_path / files.STEPS).unlink()
    write_steps(tmp_path, range(2, 4))
    assert [entry.step for entry in feed.read()] == [2, 3]
