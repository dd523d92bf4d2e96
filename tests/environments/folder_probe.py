"""python folder_probe.py FOLDER [--user ID] [--without-mounts] < {name: [tool, text]}: calls under
the profile folder.

Prints {name: answer}, and what the calls changed: FOLDER has a file, a folder and a process that
they must not reach.
--without-mounts: as in a container whose filter allows neither namespaces nor mounts.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from seccompy import Filter

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.of_run import EnvironmentsOfRun

NAMESPACES = (
    "unshare",
    "setns",
    "mount",
    "umount2",
    "mount_setattr",
    "fsopen",
    "open_tree",
    "move_mount",
    "pivot_root",
)


def become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def forbid_mounts() -> None:
    calls = Filter()
    for name in NAMESPACES:
        calls.errno(name, errno.EPERM)
    calls.load()


def state(folder: Path, pid: int) -> dict[str, Any]:
    """All that the calls try to change."""
    return {
        "modes": [
            oct(path.stat().st_mode)
            for path in (folder, folder / "file", folder / "inner", Path("/dev/null"))
        ],
        "times": [(folder / "file").stat().st_mtime_ns, (folder / "inner").stat().st_mtime_ns],
        "owners": [(folder / "file").stat().st_uid, (folder / "file").stat().st_gid],
        "attributes": os.listxattr(folder / "file"),
        "limits": [
            resource.prlimit(pid, kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
        ],
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "own nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(pid)),
        "policy": os.sched_getscheduler(pid),
        "io": subprocess.run(
            ["ionice", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout,
        "lives": Path(f"/proc/{pid}").exists(),
        "entries": sorted(os.listdir(folder)),
    }


async def answers(calls: dict[str, list[str]], replaced: dict[str, str]) -> dict[str, str]:
    settings = ToolSet(
        name="t", tools=("shell", "python"), profile="folder", call_seconds=120, reset_seconds=240
    )
    run = EnvironmentsOfRun([settings])
    found = {}
    try:
        environment = await run.acquire("t")
        await environment.reset({})
        for name, (tool, text) in calls.items():
            for word, value in replaced.items():
                text = text.replace(word, value)
            arguments = {"command" if tool == "shell" else "code": text}
            found[name] = (await environment.call(tool, arguments)).text
        await run.release(environment, is_reusable=False)
    finally:
        await run.close()
    return found


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    if "--user" in arguments:
        become(int(arguments[arguments.index("--user") + 1]))
    if "--without-mounts" in arguments:
        forbid_mounts()
    os.chdir("/")
    (folder / "file").write_text("mine")
    (folder / "file").chmod(0o600)
    (folder / "inner").mkdir(0o700)
    with subprocess.Popen(["sleep", "3600"]) as victim:
        before = state(folder, victim.pid)
        calls = json.load(sys.stdin)
        found = asyncio.run(
            answers(
                calls, {"VICTIM": str(victim.pid), "OUTSIDE": str(folder), "USER": str(os.getuid())}
            )
        )
        after = state(folder, victim.pid)
        victim.kill()
    if before["modes"] != after["modes"] and os.getuid() == 0:
        Path("/dev/null").chmod(0o666)  # of the whole machine
    changed = {name: [value, after[name]] for name, value in before.items() if value != after[name]}
    print(json.dumps({"answers": found, "changed": changed}))


if __name__ == "__main__":
    main(sys.argv[1:])
