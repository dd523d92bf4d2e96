"""podman's containers: their end when those who use them are killed, limits, and what is refused
before the start.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import remove_abandoned_containers
from rollcast.environments.containers.archives import check_archive, pack_folder, unpack_file
from rollcast.environments.containers.check import missing_limits
from rollcast.environments.containers.engines import missing_for_containers
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.podman import Podman
from rollcast.environments.containers.podman_arguments import podman_command
from testkit.containers import (
    IMAGE,
    START_SECONDS,
    our_containers,
    podman,
    runtime,
)

NEEDS_PODMAN = pytest.mark.usefixtures("podman_machine")
SETTINGS = ContainerSettings(image=IMAGE, runtime=runtime(), memory_gib=0.0625, processes=32)
OWNER = f"""
import asyncio
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.podman import Podman

async def main():
    settings = ContainerSettings.model_validate_json({SETTINGS.model_dump_json()!r})
    print((await Podman(settings).start({IMAGE!r}, {START_SECONDS})).name, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@NEEDS_PODMAN
def test_a_killed_owner_leaves_no_container() -> None:
    before = our_containers()
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().decode().strip()
        assert name in our_containers()
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while our_containers() - before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert our_containers() <= before


@NEEDS_PODMAN
def test_containers_of_an_owner_that_is_gone_are_removed_and_others_are_not() -> None:
    def start(owner: str) -> str:
        name = f"rollcast-test-{os.getpid()}-{owner.replace(':', '-')}"
        arguments = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
        label = f"rollcast.owner={owner}"
        started = podman(
            *("run", "--detach", "--rm", "--name", name, "--label", label, "--network", "none"),
            *(*arguments, IMAGE, "/bin/sleep", "1000"),
        )
        assert started.returncode == 0, started.stderr
        return name

    ticks = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    gone, reused, alive = (
        start("4194303:7"),
        start(f"{os.getpid()}:7"),
        start(f"{os.getpid()}:{ticks}"),
    )
    try:
        assert remove_abandoned_containers(podman_command(SETTINGS)) >= 2
        assert not {gone, reused} & our_containers()
        assert alive in our_containers()
    finally:
        podman("rm", "--force", "--time", "0", "--ignore", gone, reused, alive)


@NEEDS_PODMAN
def test_the_check_before_a_start_names_what_is_missing() -> None:
    assert list(missing_for_containers(SETTINGS, "tools", "box")) == []
    absent = SETTINGS.model_copy(update={"image": "localhost/not-there:1"})
    (sentence,) = missing_for_containers(absent, "tools", "box")
    assert sentence.startswith("box.image = localhost/not-there:1: is not on this machine")
    without = SETTINGS.model_copy(update={"runtime": "not-there"})
    (sentence,) = missing_for_containers(without, "tools", "box")
    assert "not-there" in sentence
    option = SETTINGS.model_copy(update={"image": "--help"})
    (sentence,) = missing_for_containers(option, "tools", "box")
    assert sentence == "box.image = --help: is no name of an image; correct it"


@pytest.mark.parametrize(
    ("host", "limits", "words"),
    [
        ({}, "cgroups", ""),
        ({"rootless": True}, "cgroups", "may not limit cpu, memory, pids"),
        (
            {"rootless": True, "version": "v2", "has": ["memory", "pids"]},
            "cgroups",
            "not limit cpu",
        ),
        ({"rootless": True, "version": "v2", "has": ["cpu", "memory", "pids"]}, "cgroups", ""),
        ({"rootless": True}, "rlimits", ""),
        ({"driver": "vfs"}, "cgroups", "storage driver is vfs"),
    ],
)
def test_limits_that_podman_cannot_keep_are_refused(
    host: dict[str, object], limits: str, words: str
) -> None:
    info = {
        "host": {
            "security": {"rootless": host.get("rootless", False)},
            "cgroupVersion": host.get("version", "v1"),
            "cgroupControllers": host.get("has"),
        },
        "store": {"graphDriverName": host.get("driver", "overlay")},
    }
    said = list(missing_limits(SETTINGS.model_copy(update={"limits": limits}), info, "box"))
    assert [words in sentence for sentence in said] == ([True] if words else [])


@NEEDS_PODMAN
@pytest.mark.asyncio
async def test_limits_of_each_process_stand_in_for_control_groups() -> None:
    settings = SETTINGS.model_copy(
        update={"limits": "rlimits", "disk_gib": 0.001, "memory_gib": 0.5}
    )
    container = await Podman(settings).start(IMAGE, START_SECONDS)
    # A file of the largest size is more than a container may write altogether.
    assert container.disk_watch is not None
    container.disk_watch.cancel()
    try:
        command = "cat /proc/self/limits; dd if=/dev/zero of=/tmp/big bs=1048576 count=3"
        output = await container.run(["/bin/sh", "-c", command], 20)
        limits = {line[:25].strip(): line[26:46].strip() for line in output.text.splitlines()}
        assert limits["Max data size"] == str(1 << 29)
        assert limits["Max processes"] == "32"
        assert limits["Max file size"] == str(int(0.001 * (1 << 30)))
        assert output.code
    finally:
        await container.end()


def archive_of(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar archive of (name, type, link)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.linkname = link
            entry.mode = 0o6755
            archive.addfile(entry)
    buffer.seek(0)
    return buffer


FOLDER = ("repo", tarfile.DIRTYPE, "")


@pytest.mark.parametrize(
    "entries",
    [
        [("bin", tarfile.DIRTYPE, ""), ("bin/grep", tarfile.REGTYPE, "")],
        [("repo", tarfile.SYMTYPE, "/bin")],
        [FOLDER, ("repo/link", tarfile.SYMTYPE, "/bin"), ("repo/link/grep", tarfile.REGTYPE, "")],
        [FOLDER, ("repo/../bin/grep", tarfile.REGTYPE, "")],
        [FOLDER, ("/bin/grep", tarfile.REGTYPE, "")],
        [FOLDER, ("repo/hard", tarfile.LNKTYPE, "bin/grep")],
        [FOLDER, ("repo/hard", tarfile.LNKTYPE, "repo/../bin/grep")],
    ],
)
def test_an_archive_that_reaches_elsewhere_is_refused(
    entries: list[tuple[str, bytes, str]],
) -> None:
    with pytest.raises(SpoiledError):
        check_archive(archive_of(*entries), "/repo")


def test_an_archive_keeps_files_folders_and_links_without_set_user_bits() -> None:
    entries = [
        FOLDER,
        ("repo/file", tarfile.REGTYPE, ""),
        ("repo/link", tarfile.SYMTYPE, "/bin"),
        ("repo/hard", tarfile.LNKTYPE, "repo/file"),
        ("repo/device", tarfile.CHRTYPE, ""),
    ]
    with (
        check_archive(archive_of(*entries), "/repo") as checked,
        tarfile.open(fileobj=checked) as kept,
    ):
        assert [entry.name for entry in kept] == ["repo", "repo/file", "repo/link", "repo/hard"]
        assert {entry.mode for entry in kept} == {0o755}


def test_a_folder_is_packed_only_if_nothing_leads_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "inside" / "link").symlink_to("../secret")
    with pytest.raises(ContainerError, match="leads out of"):
        pack_folder(tmp_path / "inside")
    (tmp_path / "inside" / "link").unlink()
    os.mkfifo(tmp_path / "inside" / "pipe")
    with pytest.raises(ContainerError, match="neither file nor folder"):
        pack_folder(tmp_path / "inside")


def test_an_archive_that_is_no_file_is_nothing() -> None:
    assert unpack_file(b"") is None
    assert unpack_file(b"x" * 2_000) is None
