"""The files in which services write their ports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rollcast.config.errors import PassingError
from rollcast.connections.port_files import port_file, publish_port, read_port
from testkit.small_disk import fill, small_disk


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o750), (0o077, 0o700)])
def test_the_first_service_makes_a_folder_that_others_cannot_read(
    tmp_path: Path, umask: int, mode: int
) -> None:
    folder = tmp_path / "run"
    before = os.umask(umask)
    try:
        publish_port(folder, "generator-0", 8123)
    finally:
        os.umask(before)
    assert read_port(port_file(folder, "generator-0")) == 8123
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "ports")] == [mode, mode]


def test_a_full_disk_is_one_sentence_and_may_pass(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        fill(disk, but_bytes=0)
        with pytest.raises(PassingError, match=r"No space left on device.*; free space or fix"):
            publish_port(disk / "run", "trainer", 8123)
