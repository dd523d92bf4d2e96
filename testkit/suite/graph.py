"""Which files a test file reaches, and how far away each is.

A file reaches the modules that it imports, the modules whose dotted names it has as strings
(programs that it starts, modules that it finds by name), the packages of these, and what
`without_import.py` adds. A file that is not Python belongs to the Python files of its folder, or of
the nearest folder above that has any.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from testkit.suite.changes import ROOT, tracked_files
from testkit.suite.without_import import LINKS

PACKAGES = {
    "rollcast": "services/rollcast",
    **{name: name for name in ("testkit", "benchmarks", "lab", "tests", "monitoring", "documents")},
}
"""Import package -> its folder."""
LAZY_PACKAGE = "services/rollcast/__init__.py"
"""Imports `rollcast.python` only when a name of it is used; every module would reach it
otherwise."""
_DOTTED_NAME = re.compile(rf"""["' ]((?:{"|".join(PACKAGES)})(?:\.[a-z_0-9]+)+)["' ]""")


class ReachGraph:
    """Files of the repository as nodes; an edge leads from a file to one that it reaches without
    another between.
    """

    def __init__(self, files: Collection[str], imports: Mapping[str, Iterable[str]]) -> None:
        self.files = frozenset(files)
        self._imports = imports
        self._users: dict[str, set[str]] = defaultdict(set)
        for user, used in imports.items():
            if user != LAZY_PACKAGE:
                for file in used:
                    self._add_edge(user, file)
        self._add_packages()
        self._add_links()
        self._add_data_files()

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """Each file that reaches one of the changed files -> the fewest edges between them; 0 for a
        changed file itself.
        """
        distances = dict.fromkeys(changed, 0)
        queue = deque(distances)
        while queue:
            file = queue.popleft()
            for user in self._users[file]:
                if user not in distances:
                    distances[user] = distances[file] + 1
                    queue.append(user)
        return distances

    def reaching_tests(self, changed: Iterable[str]) -> dict[str, int]:
        """The test files among `distances` that are there: a deleted one cannot run."""
        return {
            file: distance
            for file, distance in self.distances(changed).items()
            if is_test_file(file) and file in self.files
        }

    def imported_files(self, tests: Iterable[str]) -> frozenset[str]:
        """What test files and the conftest files of their folders import, and what of it outside
        services/ imports.
        """
        conftests = {f"{Path(test).parent}/conftest.py" for test in tests} & (
            self.files - {"tests/conftest.py"}
        )
        imported = {*tests, *conftests}
        queue = deque(imported)
        while queue:
            new = {*self._imports.get(queue.popleft(), ())} - imported
            imported |= new
            queue.extend(file for file in new if not file.startswith("services/"))
        return frozenset(imported)

    def _add_edge(self, user: str, used: str) -> None:
        if user != used:
            self._users[used].add(user)

    def _add_packages(self) -> None:
        """Whoever imports a module runs the packages that it is in."""
        for used, users in list(self._users.items()):
            for folder in list(Path(used).parents)[:-1]:
                package = f"{folder}/__init__.py"
                if package in self.files and package != used:
                    self._users[package] |= users

    def _add_links(self) -> None:
        for link in LINKS:
            users = [file for file in self.files if _matches(file, link.users)]
            for used in (file for file in self.files if _matches(file, link.used)):
                for user in users:
                    self._add_edge(user, used)

    def _add_data_files(self) -> None:
        modules: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            if file.endswith(".py"):
                modules[str(Path(file).parent)].append(file)
        for file in self.files:
            if not file.endswith(".py"):
                folder = next(
                    (str(parent) for parent in Path(file).parents if modules[str(parent)]), None
                )
                for user in modules[folder] if folder not in (None, ".") else ():
                    self._add_edge(user, file)


def load_graph() -> ReachGraph:
    """The graph of the working tree. Takes a second, and three where files came or went."""
    import grimp

    files = frozenset(tracked_files())
    imports: dict[str, set[str]] = defaultdict(set)
    # The cache knows a module by its time of change alone. A file that came since makes imports of
    # an older one wrong.
    modules_digest = hashlib.blake2b("\n".join(sorted(files)).encode(), digest_size=8).hexdigest()
    cache = ROOT / ".cache" / "suite" / "imports"
    for stale in cache.glob("*"):
        if stale.name != modules_digest:
            shutil.rmtree(stale, ignore_errors=True)
    graph = grimp.build_graph(*PACKAGES, cache_dir=str(cache / modules_digest))
    for module in graph.modules:
        for user in _module_files(module, files):
            for used in graph.find_modules_directly_imported_by(module):
                imports[user].update(_module_files(used, files))
    for user in files:
        if user.endswith((".py", ".sh", "Makefile")):
            for match in _DOTTED_NAME.finditer((ROOT / user).read_text(errors="replace")):
                imports[user].update(_module_files(match[1], files, with_main=True))
    return ReachGraph(files, imports)


def _module_files(module: str, files: Collection[str], *, with_main: bool = False) -> list[str]:
    """The file of a module; of a package its `__init__.py`, and what `python -m` runs of it if it
    may be started.
    """
    package, _, rest = module.partition(".")
    path = "/".join([PACKAGES[package], *filter(None, rest.split("."))])
    names = [f"{path}.py", f"{path}/__init__.py", *([f"{path}/__main__.py"] if with_main else [])]
    return [file for file in names if file in files]


def is_test_file(file: str) -> bool:
    """Whether pytest collects it."""
    return file.startswith("tests/") and fnmatchcase(Path(file).name, "test_*.py")


def _matches(file: str, patterns: Iterable[str]) -> bool:
    """`*` in a pattern crosses folders."""
    return any(fnmatchcase(file, pattern) for pattern in patterns)
