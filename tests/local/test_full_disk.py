"""A disk that is full, really: a small tmpfs.

What is said of it, when the log itself takes no more as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcast.local.disk_watch import LOW_BYTES, DiskWatch
from rollcast.local.process import Command, Service, ServiceSpec, last_words
from testkit.small_disk import fill, small_disk

DISK_BYTES = 3 * LOW_BYTES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def test_it_is_said_once_that_a_disk_fills_up_and_once_that_it_is_full(disk: Path) -> None:
    watch = DiskWatch(disk)
    assert watch.lines() == []
    fill(disk, but_bytes=10 << 20)
    assert watch.lines() == [
        f"10 MiB are left on the disk of {disk}: free space, or the run stops when it is full"
    ]
    assert watch.lines() == []
    fill(disk, but_bytes=0)
    full = [f"no space is left on the disk of {disk}: the run cannot go on until you free some"]
    assert watch.lines() == full
    assert watch.lines() == []
    (disk / "filler").unlink()
    assert watch.lines() == []
    fill(disk, but_bytes=0)
    assert watch.lines() == full, "full again"


def test_a_disk_that_is_not_there_is_no_full_one(tmp_path: Path) -> None:
    assert DiskWatch(tmp_path / "gone").lines() == []


@pytest.mark.parametrize("logged", [False, True])
def test_a_service_whose_log_takes_no_more_ended_for_want_of_space(
    disk: Path, logged: bool
) -> None:
    """What it wrote before is no reason; a sentence that found room is one, and is enough."""
    log = disk / "trainer.log"
    log.write_text("x" * 4096)  # whole pages: the next byte needs one more
    program = (
        "import sys; print('error: checkpoint folder x cannot be written', file=sys.stderr); "
        "sys.exit(1)"
    )
    service = Service(
        ServiceSpec("trainer", (Command((sys.executable, "-c", program), log),), 0, 5.0)
    )
    fill(disk, but_bytes=4096 if logged else 0)
    service.start()
    while (code := service.poll()) is None:
        pass
    assert code != 0
    full = f"no space is left on the disk of {disk}; free some"
    said = f"checkpoint folder x cannot be written ({full})" if logged else full
    assert service.last_words() == said


def test_a_reason_that_names_the_disk_is_said_as_it_is(disk: Path) -> None:
    log = disk / "trainer.log"
    log.write_text(
        "error: folder x cannot be written (No space left on device); free space there\n"
    )
    fill(disk, but_bytes=0)
    assert (
        last_words(log, 0)
        == "folder x cannot be written (No space left on device); free space there"
    )
