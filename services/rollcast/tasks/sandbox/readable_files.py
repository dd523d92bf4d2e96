"""The files that a locked-down process can read: the standard library and what its code needs.

It can write none.
"""

import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/dev/urandom",
)
"""Shared libraries and time zones; nothing that differs between two machines with the same
image."""


def standard_library() -> list[Path]:
    """Folders and files of this Python, of numpy if it is installed, and
    of the system's libraries.
    """
    library_folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    return _existing([*library_folders, *_package("numpy"), *map(Path, _SYSTEM)])


def readable_files(module: str) -> list[Path]:
    """The standard library, every installed package, and the package or file that holds `module`,
    with the Python files next to a file, which it may import late."""
    site = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    module_paths = _package(module.partition(".")[0])
    neighbors = [
        file for path in module_paths if path.is_file() for file in path.parent.glob("*.py")
    ]
    return _existing([*standard_library(), *site, *module_paths, *neighbors])


def _package(name: str) -> list[Path]:
    package_spec = (
        importlib.util.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    )
    if package_spec is None or package_spec.origin is None:
        return []
    if package_spec.submodule_search_locations is None:
        return [Path(package_spec.origin)]
    folders = [Path(folder) for folder in package_spec.submodule_search_locations]
    return [*folders, *(folder.with_name(f"{name}.libs") for folder in folders)]


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Never the root of all files, whatever a path setting says."""
    return [
        path
        for path in dict.fromkeys(path.resolve() for path in paths)
        if path.exists() and path != Path("/")
    ]
