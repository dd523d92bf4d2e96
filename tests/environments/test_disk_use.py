"""What counts as taken by an environment's files, and their removal."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from rollcast.environments.python_processes.disk_use import MIN_ENTRY_BYTES, DiskLimits, excess
from rollcast.environments.python_processes.removal import remove_tree

SIZE = 1 << 20


def filled(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, SIZE)
    return file


def has_more(folder: Path, num_bytes: int, processes: tuple[int, ...] = ()) -> bool:
    return "its files took more" in excess(folder, processes, DiskLimits(num_bytes))


def test_empty_files_folders_and_what_a_folder_hides_count(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/")
    assert has_more(tmp_path, 103 * MIN_ENTRY_BYTES - 1)
    assert not has_more(tmp_path, 200 * MIN_ENTRY_BYTES)
    os.close(filled(tmp_path / "a" / "b" / "file"))
    (tmp_path / "a").chmod(0)
    assert has_more(tmp_path, SIZE)
    assert not has_more(tmp_path, 200 * MIN_ENTRY_BYTES + SIZE)


def test_files_without_a_name_count_once_while_they_are_open(tmp_path: Path) -> None:
    files = [filled(tmp_path / "file")]
    (tmp_path / "file").unlink()
    files.append(os.dup(files[0]))
    assert has_more(tmp_path, SIZE - 1, (os.getpid(), 1 << 30))
    assert not has_more(tmp_path, 2 * SIZE, (os.getpid(),))
    for file in files:
        os.close(file)
    assert not has_more(tmp_path, 0, (os.getpid(),))


def test_files_and_depth_are_bounded(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "file").touch()
    pauses: list[None] = []
    assert (
        excess(tmp_path, (), DiskLimits(num_entries=29, depth=8), lambda: pauses.append(None)) == ""
    )
    assert "more than the 28 files" in excess(tmp_path, (), DiskLimits(num_entries=28))
    assert "more than the 7 folders inside each other" in excess(tmp_path, (), DiskLimits(depth=7))


def nest(folder: Path, depth: int, name: str) -> None:
    """Deeper than any path can say."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


@pytest.mark.parametrize(("depth", "name"), [(1_500, "d"), (200, "d" * 200)])
def test_a_folder_of_any_depth_is_seen_and_removed(depth: int, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    nest(folder, depth, name)
    assert "inside each other" in excess(folder, (), DiskLimits())
    assert excess(folder, (), DiskLimits(depth=depth)) == ""
    remove_tree(str(folder))
    assert not folder.exists()


def test_a_removal_follows_no_link_and_minds_no_mode(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "file").touch()
    folder = tmp_path / "folder"
    for number in range(300):
        (folder / f"{number}" / "inner").mkdir(parents=True)
        (folder / f"{number}" / "inner" / "file").touch()
        (folder / f"{number}" / "link").symlink_to(outside)
        (folder / f"{number}" / "inner").chmod(0)
    (folder / "link").symlink_to(outside)
    (folder / "0").chmod(0o111)
    folder.chmod(0o500)
    remove_tree(str(folder))
    assert not folder.exists()
    assert (outside / "file").exists()
    assert outside.stat().st_mode & 0o777 == 0o750


def test_a_removal_follows_no_link_that_takes_a_folders_place(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").touch()
    folder = tmp_path / "folder"
    is_over = threading.Event()

    def exchange() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                (folder / "a" / "b").mkdir(parents=True)
            with contextlib.suppress(OSError):
                (folder / "l").symlink_to(outside)
            for source, target in (("a", "x"), ("l", "a"), ("a", "l"), ("x", "a")):
                with contextlib.suppress(OSError):
                    os.rename(folder / source, folder / target)

    thread = threading.Thread(target=exchange)
    thread.start()
    for _ in range(200):
        remove_tree(str(folder))
    is_over.set()
    thread.join()
    assert (outside / "inner" / "file").exists()
