"""A small image for tests of containers, made on the spot from Debian's static busybox."""

from __future__ import annotations

import functools
import io
import shutil
import subprocess
import tarfile
from typing import Any

IMAGE = "localhost/rollcast-tests:1"
PROGRAMS = (
    "awk", "cat", "chmod", "cut", "dd", "grep", "head", "id", "ls", "mkdir", "ps", "rm", "sed",
    "seq", "sh", "sleep", "tar", "test", "touch", "wc", "yes",
)  # fmt: skip
START_SECONDS = 120


def runtime() -> str | None:
    """Not crun, Debian's default: it refuses a machine with control groups of both versions."""
    return "runc" if shutil.which("runc") else None


def podman_command(*arguments: str) -> list[str]:
    """A call of podman with the runtime of this machine."""
    chosen = runtime()
    return ["podman", *(("--runtime", chosen) if chosen else ()), *arguments]


def podman(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = podman_command(*arguments)
    return subprocess.run(
        command, capture_output=True, timeout=START_SECONDS, check=False, **options
    )


def our_containers() -> set[str]:
    """Names of the containers of this machine that Rollcast started."""
    listed = podman("ps", "--all", "--filter", "label=rollcast.owner", "--format", "{{.Names}}")
    return set(listed.stdout.decode().split())


@functools.cache
def why_no_containers() -> str:
    """Why this machine starts no container; empty = it does, and has IMAGE."""
    busybox = shutil.which("busybox")
    if shutil.which("podman") is None or busybox is None:
        return "podman and busybox-static are not installed"
    made = podman("import", "-", IMAGE, input=_root_files(busybox))
    if made.returncode:
        return f"podman makes no image: {made.stderr.decode()[-300:]}"
    started = podman(
        *("run", "--rm", "--network", "none", "--memory", "64m", "--pids-limit", "32"),
        *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
        *(IMAGE, "/bin/sh", "-c", "echo started"),
    )
    if started.stdout != b"started\n":
        return f"podman starts no container here: {started.stderr.decode()[-300:]}"
    return ""


def _root_files(busybox: str) -> bytes:
    """The file system of the image, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(busybox, "bin/busybox")
        for name in PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type = tarfile.SYMTYPE
            entry.linkname = "busybox"
            archive.addfile(entry)
    return buffer.getvalue()
