"""What a fork server imports before its first grading, so that no grading pays for it, and the files that a locked-down
process can read: the standard library and what its verifier needs. It can write none."""

import contextlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from rollcast.tasks.verifiers import CODE, find_verifier, is_built_in

_USUAL_IMPORTS = (
    "abc", "array", "bisect", "calendar", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "numbers",
    "operator", "queue", "random", "re", "statistics", "string", "struct", "sys", "textwrap", "threading", "time",
    "typing", "unicodedata", "zlib", "numpy",
)  # fmt: skip
_WARM_UP = r"\boxed{\frac{1}{2} + \sqrt{x^2}}"
"""Graded once before the first fork: a parser that learns while it parses (math-verify's) has learnt most then."""
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/dev/urandom")
"""Shared libraries and time zones; nothing that differs between two machines with the same image."""


def prepare(verifier: str) -> list[Path]:
    """Import what gradings of this verifier use; returns what their processes may read. Raises what its import does.

    A function of a user's own is imported and not called: it is not locked down yet.
    """
    if verifier == CODE:
        for module in _USUAL_IMPORTS:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        return _existing(_standard_library())
    function = find_verifier(verifier).load()
    if is_built_in(verifier):
        with contextlib.suppress(Exception):
            function(_WARM_UP, _WARM_UP)
    return readable_files(getattr(function, "__module__", None) or __name__)  # a partial has no name


def _standard_library() -> list[Path]:
    """Folders and files of this Python, of numpy if it is installed, and of the system's libraries."""
    library_folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    return [*library_folders, *_package("numpy"), *map(Path, _SYSTEM)]


def readable_files(module: str) -> list[Path]:
    """The standard library, every installed package, and the package or file that holds `module`, with the Python files
    next to a file, which it may import late."""
    site = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    module_paths = _package(module.partition(".")[0])
    neighbors = [file for path in module_paths if path.is_file() for file in path.parent.glob("*.py")]
    return _existing([*_standard_library(), *site, *module_paths, *neighbors])


def _package(name: str) -> list[Path]:
    package_spec = importlib.util.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    if package_spec is None or package_spec.origin is None:
        return []
    if package_spec.submodule_search_locations is None:
        return [Path(package_spec.origin)]
    folders = [Path(folder) for folder in package_spec.submodule_search_locations]
    return [*folders, *(folder.with_name(f"{name}.libs") for folder in folders)]


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Never the root of all files, whatever a path setting says."""
    return [path for path in dict.fromkeys(path.resolve() for path in paths) if path.exists() and path != Path("/")]
