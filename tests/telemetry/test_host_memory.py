"""What the kernel tells of memory, from files as it writes them."""

from __future__ import annotations

import signal
from pathlib import Path

from rollcast.telemetry.host_memory import free_bytes, how_it_ended, kills

MEMINFO = "MemTotal:       24592288 kB\nMemFree:        17000000 kB\nMemAvailable:   20000000 kB\n"
VMSTAT = "pgfault 12345\noom_kill 7\n"


def written(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (
            folder / name.replace("_", ".", 1) if name.startswith("memory_") else folder / name
        ).write_text(text)
    return folder


def test_a_machine_tells_what_is_free_and_what_it_killed(tmp_path: Path) -> None:
    proc = written(tmp_path / "proc", meminfo=MEMINFO, vmstat=VMSTAT)
    assert free_bytes(tmp_path / "no-group", proc) == 20_000_000 << 10
    assert kills(tmp_path / "no-group", proc) == 7


def test_a_control_group_with_a_limit_tells_of_itself(tmp_path: Path) -> None:
    proc = written(tmp_path / "proc", meminfo=MEMINFO, vmstat=VMSTAT)
    group = written(
        tmp_path / "group",
        memory_max="8000000000\n",
        memory_current="7000000000\n",
        memory_stat="anon 5000000000\ninactive_file 1500000000\n",
        memory_events="low 0\noom 2\noom_kill 1\n",
    )
    assert free_bytes(group, proc) == 2_500_000_000
    assert kills(group, proc) == 1
    (group / "memory.max").write_text("max\n")
    assert free_bytes(group, proc) == 20_000_000 << 10


def test_this_machine_is_read_as_the_system_tells_it() -> None:
    assert free_bytes() > 0
    assert kills() >= 0


def test_an_end_is_told_in_words() -> None:
    assert how_it_ended(1, 0) == "ended with exit code 1"
    assert how_it_ended(-signal.SIGTERM, 0) == "killed by SIGTERM"
    assert how_it_ended(-35, 0) == "killed by signal 35"
    assert how_it_ended(-signal.SIGKILL, kills()) == "killed by SIGKILL"
    assert (
        how_it_ended(-signal.SIGKILL, kills() - 1)
        == "killed by the kernel, which ran out of host memory"
    )
