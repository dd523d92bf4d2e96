"""What counts as taken by an environment's files."""

from __future__ import annotations

import os
from pathlib import Path

from rollcast.environments.hosted.disk_use import MIN_ENTRY_BYTES, used_bytes

ENOUGH = 1 << 40
SIZE = 1 << 20


def filled(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, SIZE)
    return file


def test_empty_files_folders_and_what_a_folder_hides_count(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/")
    entries = used_bytes(tmp_path, (), ENOUGH)
    assert 103 * MIN_ENTRY_BYTES <= entries < 200 * MIN_ENTRY_BYTES
    os.close(filled(tmp_path / "a" / "b" / "file"))
    (tmp_path / "a").chmod(0)
    assert entries + SIZE <= used_bytes(tmp_path, (), ENOUGH) < entries + 2 * SIZE
    assert 10 * MIN_ENTRY_BYTES < used_bytes(tmp_path, (), 10 * MIN_ENTRY_BYTES) < 12 * MIN_ENTRY_BYTES


def test_files_without_a_name_count_once_while_they_are_open(tmp_path: Path) -> None:
    before = used_bytes(tmp_path, [os.getpid()], ENOUGH)
    files = [filled(tmp_path / "file")]
    (tmp_path / "file").unlink()
    files.append(os.dup(files[0]))
    assert SIZE <= used_bytes(tmp_path, [os.getpid()], ENOUGH) - before < 2 * SIZE
    for file in files:
        os.close(file)
    assert used_bytes(tmp_path, [os.getpid(), 1 << 30], ENOUGH) == before
