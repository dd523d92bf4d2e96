"""A slice of a run on this machine: when it is paused, and what a full disk does to it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rollcast.local.status import RunStatus
from rollcast.local.sweep.local_runs import DiskFullError, SliceWatch
from rollcast.local.up import RunPausedError
from testkit.small_disk import fill, small_disk


def test_a_slice_that_is_over_is_paused_and_both_times_are_noted(tmp_path: Path) -> None:
    starts: list[float | None] = []

    def is_over(start_seconds: float | None) -> bool:
        starts.append(start_seconds)
        return len(starts) == 2

    watch = SliceWatch(is_over, tmp_path)
    watch.look(RunStatus())
    watch.look(RunStatus(is_started=True))  # within the same second: not asked again
    assert starts == [None]
    watch.next_look = 0.0
    with pytest.raises(RunPausedError):
        watch.look(RunStatus(is_started=True))
    assert starts[1] is not None
    assert 0 <= starts[1] < 60
    assert watch.pause_asked_at is not None


def test_a_disk_that_stays_full_ends_the_sweep_and_one_that_was_full_does_not(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        watch = SliceWatch(lambda _: False, disk)

        def look() -> None:
            watch.next_look = 0.0
            watch.look(RunStatus())

        filler = fill(disk, but_bytes=0)
        look()
        assert watch.full_since is not None
        filler.unlink()
        look()
        assert watch.full_since is None
        fill(disk, but_bytes=0)
        look()
        watch.full_since = time.monotonic() - 11.0
        with pytest.raises(DiskFullError, match=r"no space is left on the disk of .*same command"):
            look()
