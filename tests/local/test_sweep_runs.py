"""A slice of a run on this machine: when it is paused, and what a full disk does to it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from rollcast.config.errors import PassingError, UserError
from rollcast.local.status import RunStatus
from rollcast.local.supervisor import ServiceLostError
from rollcast.local.sweep.local_runs import (
    DiskFullError,
    LocalRuns,
    SliceWatch,
    is_from_outside,
)
from rollcast.local.up import RunPausedError
from testkit.simulated_arms import plan_arms
from testkit.small_disk import fill, small_disk


def test_a_slice_that_is_over_is_paused_and_knows_whether_a_step_was_made(tmp_path: Path) -> None:
    looks: list[bool] = []

    def is_over(has_stepped: bool) -> bool:
        looks.append(has_stepped)
        return len(looks) == 2

    watch = SliceWatch(is_over, tmp_path)
    watch.look(RunStatus())
    watch.look(RunStatus(is_started=True))  # within the same second: not asked again
    assert looks == [False]
    watch.next_look = 0.0
    with pytest.raises(RunPausedError):
        watch.look(RunStatus(is_started=True))
    assert looks == [False, True]
    assert watch.pause_asked_at is not None


def test_a_lost_slice_counts_until_the_last_trace_of_its_run(tmp_path: Path) -> None:
    (item,) = plan_arms(tmp_path, ["a"])
    runs = LocalRuns(make_view=lambda *_: pytest.fail("nothing is run"))
    began_at = time.time() - 7_200.0
    assert runs.lost_device_hours(item, began_at, 0.0) == 0.0
    item.config.run_folder.mkdir(parents=True)
    trace = item.config.run_folder / "compute.json"
    trace.touch()
    os.utime(trace, (began_at, began_at + 3_600.0))
    assert runs.lost_device_hours(item, began_at, 0.0) == pytest.approx(runs.devices(item))


@pytest.mark.parametrize(
    ("failure", "is_outside"),
    [
        (UserError("model.path = x: does not exist"), False),
        (PassingError("the hub does not answer"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (ServiceLostError("trainer ended: CUDA error", is_from_outside=False), False),
        (ServiceLostError("trainer killed by SIGKILL", is_from_outside=True), True),
        (ServiceLostError("OSError: No space left on device", is_from_outside=False), True),
    ],
)
def test_deaths_that_are_not_the_runs_own_are_told_from_its_failures(
    failure: Exception, is_outside: bool
) -> None:
    assert is_from_outside(failure) is is_outside


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
