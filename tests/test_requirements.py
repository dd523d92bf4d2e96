"""The pinned lists hold what every Python that install.sh admits needs, and can be installed as the
project does it.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements.closure import LEFT_OUT

FOLDER = Path(__file__).parents[1] / "requirements"
PYTHONS = ("3.11.0", "3.11.99")
"""The first release that install.sh admits, and one beyond the last."""
GLIBC = "x86_64-manylinux_2_36"
"""Of Debian 12, as in the images."""
WITH_DEPENDENCIES = (
    "cuda.txt",
    "trainer-cuda.txt",
    "generator-cuda.txt",
    "docs.txt",
    "loggers.txt",
    "verifiers.txt",
    "openenv.txt",
)
COMPLETE = ("cpu.txt", "control.txt", "trainer-cpu.txt", "generator-cpu.txt", "build.txt")
"""Installed with --no-deps."""
ADDED = ("renderers.txt",)
"""Installed with --no-deps on top of another list, which has the rest."""


def holds(requirement: Requirement, python: str, extra: str = "") -> bool:
    marker = requirement.marker
    environment = {"python_version": "3.11", "python_full_version": python, "extra": extra}
    return marker is None or marker.evaluate(environment)


def pinned(name: str, python: str) -> dict[str, Requirement]:
    """Package -> its line, of those that `python` installs."""
    lines = (FOLDER / name).read_text().splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(line.name): line for line in parsed if holds(line, python)}


def installed(package: str) -> Distribution | None:
    try:
        return distribution(package)
    except PackageNotFoundError:
        return None


def broken(pins: dict[str, Requirement], python: str) -> list[str]:
    """What packages of these pins ask for and the pins do not give; of those installed here."""
    waiting = [(name, extra) for name, line in pins.items() for extra in ("", *line.extras)]
    done: set[tuple[str, str]] = set()
    wrong = []
    while waiting:
        name, extra = waiting.pop()
        found = installed(name)
        if found is None or (name, extra) in done:
            continue
        done.add((name, extra))
        for need in map(Requirement, found.requires or []):
            needed = canonicalize_name(need.name)
            if not holds(need, python, extra) or needed in LEFT_OUT:
                continue
            given = installed(needed)
            if needed not in pins or (
                given and not need.specifier.contains(given.version, prereleases=True)
            ):
                wrong.append(f"{name} needs {need}, the list has {pins.get(needed)}")
            waiting += [(needed, wanted) for wanted in need.extras]
    return wrong


def test_every_list_is_looked_at() -> None:
    assert {path.name for path in FOLDER.glob("*.txt")} == {*WITH_DEPENDENCIES, *COMPLETE, *ADDED}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", COMPLETE)
def test_a_list_without_dependencies_is_complete(name: str, python: str) -> None:
    """By the metadata of the packages installed here, which are those of cpu.txt."""
    pins = pinned(name, python)
    for package, line in pins.items():
        found = installed(package)
        if found is None and not holds(line, platform.python_version()):
            continue
        if found is None or not line.specifier.contains(found.version, prereleases=True):
            pytest.skip(
                f"{line} is not what is installed here; `make setup` installs requirements/cpu.txt"
            )
    assert broken(pins, python) == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where uv keeps the metadata that it read."""
    folder = tmp_path_factory.mktemp("uv")
    try:
        done = resolve(folder, "-", python=PYTHONS[0], given="packaging")
        reason = done.stderr if done.returncode != 0 else ""
    except subprocess.TimeoutExpired as error:
        reason = str(error)
    if reason:
        pytest.skip(
            f"uv finds no packages here (UV_DEFAULT_INDEX names another index): {reason[-500:]}"
        )
    return folder


def resolve(
    cache: Path, name: str, *flags: str, python: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Choose the packages of a list for `python`; downloads their metadata and none of them."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--cache-dir",
        str(cache),
        "--no-build",
    ]
    command += ["--python", sys.executable, "--python-version", python, "--python-platform", GLIBC]
    return subprocess.run(
        [*command, *flags, name],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=FOLDER,
    )


@pytest.mark.index
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", [*COMPLETE, *ADDED, *WITH_DEPENDENCIES])
def test_a_list_can_be_installed(name: str, python: str, cache: Path) -> None:
    """With the flags of install.sh and the Dockerfiles; wheels only,
    as no compiler is asked for.
    """
    flags = ["--no-deps"] if name in (*COMPLETE, *ADDED) else []
    done = resolve(cache, name, *flags, python=python)
    assert done.returncode == 0, done.stderr
