"""A container's life: its files, and its end when those who use it are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import remove_abandoned_containers
from rollcast.environments.containers.check import missing_for_containers
from rollcast.environments.containers.container import ContainerError
from rollcast.environments.containers.files import pack_folder, unpack_file
from rollcast.environments.containers.podman import Podman, podman_command
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
@pytest.mark.asyncio
async def test_files_go_in_and_come_out(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "text").write_text("content")
    (tmp_path / "link").symlink_to("deep/text")
    starter = Podman(SETTINGS)
    container = await starter.start(IMAGE, START_SECONDS)
    other = await starter.start(IMAGE, START_SECONDS)
    try:
        await container.put(tmp_path, "/made/here")
        assert await container.read("/made/here/link", 100) == b"content"
        assert await container.read("/made/there", 100) is None
        with pytest.raises(ContainerError, match="no file of at most 3 bytes"):
            await container.read("/made/here/link", 3)
        with pytest.raises(ContainerError, match="no file of at most"):
            await container.read("/made/here", 100)
        await container.copy_to(other, "/made")
        assert await other.read("/made/here/deep/text", 100) == b"content"
        with pytest.raises(ContainerError, match="cannot be copied out"):
            await container.copy_to(other, "/nowhere")
    finally:
        await container.end()
        await other.end()
    with pytest.raises(ContainerError, match="it has ended"):
        await container.run(["/bin/sh", "-c", ":"], 10)


@NEEDS_PODMAN
@pytest.mark.asyncio
async def test_a_program_of_the_container_cannot_have_a_wrong_file_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    container = await Podman(SETTINGS).start(IMAGE, START_SECONDS)
    try:
        links = f"busybox ln -s {tmp_path}/secret /tmp/secret; busybox ln -s /etc /tmp/etc"
        await container.run(["/bin/sh", "-c", f"{links}; rm /bin/cat; mkdir /tmp/folder"], 10)
        for name in ("secret", "etc", "folder", "../dev/zero"):
            with contextlib.suppress(ContainerError):
                assert await container.read(f"/tmp/{name}", 100) is None
    finally:
        await container.end()


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
    assert list(missing_for_containers(SETTINGS, "box")) == []
    absent = SETTINGS.model_copy(update={"image": "localhost/not-there:1"})
    (sentence,) = missing_for_containers(absent, "box")
    assert sentence.startswith("box.image = localhost/not-there:1: is not on this machine")
    without = SETTINGS.model_copy(update={"runtime": "not-there"})
    assert list(missing_for_containers(without, "box")) == [
        "box.runtime = not-there: there is no such program; install it"
    ]


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
