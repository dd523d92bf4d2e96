"""Which files a locked-down process can read: the standard library and what its verifier needs. It can write none."""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from landlockpy import AccessFS, Ruleset, Scope

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/dev/urandom")
"""Shared libraries and time zones; nothing that differs between two machines with the same image."""


def standard_library() -> list[Path]:
    """Folders and files of this Python, of numpy if it is installed, and of the system's libraries."""
    own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    return _existing([*own, *_package("numpy"), *map(Path, _SYSTEM)])


def installed_packages(module: str) -> list[Path]:
    """These, every installed package, and the package or file that holds `module`, with the Python files next to a
    file, which it may import late."""
    site = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    own = _package(module.partition(".")[0])
    beside = [file for path in own if path.is_file() for file in path.parent.glob("*.py")]
    return _existing([*standard_library(), *site, *own, *beside])


def _package(name: str) -> list[Path]:
    found = importlib.util.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    if found is None or found.origin is None:
        return []
    if found.submodule_search_locations is None:
        return [Path(found.origin)]
    folders = [Path(folder) for folder in found.submodule_search_locations]
    return [*folders, *(folder.with_name(f"{name}.libs") for folder in folders)]


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Never the root of all files, whatever a path setting says."""
    return [path for path in dict.fromkeys(path.resolve() for path in paths) if path.exists() and path != Path("/")]


def read_only(paths: Iterable[Path]) -> Ruleset:
    """A Landlock ruleset under which only these can be opened, for reading; no TCP, no signals to outside.

    Rights that this kernel's Landlock does not know are left out; the system-call filter covers each of them as well.
    """
    ruleset = Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL)
    for path in paths:
        ruleset.allow_path(path, AccessFS.READ_FILE | AccessFS.READ_DIR if os.path.isdir(path) else AccessFS.READ_FILE)
    return ruleset
