"""The files that a process reaches, by Landlock, if it starts programs of the system, or a new
Python.
"""

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rollcast
from rollcast.tasks.sandbox.lockdown import allow_reading, has_signal_scope, scoped_ruleset

_PROGRAMS = (
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/lib", "/lib64", "/usr/lib",
    "/usr/lib64", "/usr/libexec", "/usr/local/lib",
)  # fmt: skip
_CONFIGURED = (
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/share",
    "/usr/include",
    "/usr/local/include", "/etc/debian_version", "/etc/lsb-release", "/etc/os-release",
    "/etc/localtime",
    "/etc/mime.types", "/etc/python3",
    f"/etc/python{sys.version_info.major}.{sys.version_info.minor}",
)  # fmt: skip
"""Files that programs of the system read; nothing of a user's."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")


def allow_folder(readable: Iterable[Path], writable: Iterable[Path]) -> Any:
    """A ruleset: reads and programs of the system, everything in the folders, and no network or
    signal to outside.
    """
    from landlockpy import AccessFS

    ruleset = scoped_ruleset()
    interpreters = [Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_path("scripts"))]
    system_files = [*map(Path, _PROGRAMS), *map(Path, _CONFIGURED)]
    allow_reading(ruleset, [*readable, *interpreters, *system_files], can_execute=True)
    for device in map(Path, _DEVICES):
        if device.exists():
            ruleset.allow_path(device, AccessFS.READ_FILE | AccessFS.WRITE_FILE)
    reads = AccessFS.READ_FILE | AccessFS.READ_DIR
    everything = reads | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REFER
    changes = AccessFS.REMOVE_DIR | AccessFS.REMOVE_FILE | AccessFS.MAKE_DIR | AccessFS.MAKE_REG
    links = AccessFS.MAKE_SYM | AccessFS.MAKE_FIFO | AccessFS.MAKE_SOCK
    _allow_import(ruleset)
    for folder in writable:
        ruleset.allow_path(folder, everything | changes | links)
    return ruleset


def reachable_variables(home: Path) -> dict[str, str]:
    """Variables of programs in the folder, made by a process that reaches no more than they do.

    Folders that cannot be read are left out of paths, and git does not look for system-wide
    settings.
    """
    path = _readable_folders("PATH") or os.defpath
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": path,
        "PYTHONPATH": _readable_folders("PYTHONPATH"),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def _readable_folders(variable: str) -> str:
    folders = []
    for folder in os.environ.get(variable, "").split(os.pathsep):
        with contextlib.suppress(OSError), os.scandir(folder):
            folders.append(folder)
    return os.pathsep.join(folders)


def allow_interpreter(readable: Iterable[Path]) -> Any:
    """A ruleset for a process that will compute alone: it also starts this Python, with our
    package.
    """
    ruleset = scoped_ruleset()
    libraries = [
        Path(sys.base_prefix) / "lib",
        Path(sys.prefix) / "pyvenv.cfg",
        Path(sys.executable).resolve(),
    ]
    allow_reading(ruleset, [*readable, *libraries], can_execute=True)
    _allow_import(ruleset)
    return ruleset


def _own_package() -> Path:
    return Path(rollcast.__file__).resolve().parent


def _allow_import(ruleset: Any) -> None:
    """Python looks our package up in the list of the folder around it."""
    from landlockpy import AccessFS

    ruleset.allow_path(_own_package(), AccessFS.READ_FILE | AccessFS.READ_DIR)
    ruleset.allow_path(_own_package().parent, AccessFS.READ_DIR)


def keep_signals_inside() -> None:
    """A further layer, under which this process and its children signal one another alone, if the
    kernel can.
    """
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope

    if has_signal_scope():
        with Ruleset(
            handled_fs=AccessFS.NONE, handled_net=AccessNet.NONE, scoped=Scope.SIGNAL
        ) as ruleset:
            ruleset.restrict()
