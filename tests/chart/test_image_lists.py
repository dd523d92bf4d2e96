"""The install lists of the images against what the services import.

`ROLLCAST_INSTALL_IMAGES=1` installs the control image's list into a fresh environment and has pip
find every package of the other lists.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.only_these import hidden_modules, run_with_only

ROOT = Path(__file__).parents[2]
IMAGES = ("control", "trainer", "generator")
IMPORTS = {
    "control": (
        "forecaster.service",
        "autoscaler.service",
        "autoscaler.old_trainers",
        "grader.service",
        "cli.main",
        "local.preflight",
        "tasks.sandbox.preparation",
        "tasks.sandbox.system_calls",
    ),
    "trainer": ("trainer.service", "trainer.launch", "cli.model", "local.demo.training"),
    "generator": ("generator.grading", "generator.service", "cli.model"),
}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.engine
def test_the_services_import_with_nothing_but_their_list(image: str) -> None:
    """Every other package of this environment is hidden from the import system."""
    file = "control.txt" if image == "control" else f"{image}-cpu.txt"
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    listed = {
        re.split("[=<>]", line)[0].lower().replace("_", "-")
        for line in lines
        if not line.startswith("#")
    }
    program = "import " + ", ".join(f"rollcast.{module}" for module in IMPORTS[image])
    done = run_with_only(listed, program, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("torch" in hidden_modules(listed)) is (image == "control")


INSTALLS = pytest.mark.skipif(
    "ROLLCAST_INSTALL_IMAGES" not in os.environ,
    reason="ROLLCAST_INSTALL_IMAGES is not set: nothing is installed",
)


@INSTALLS
@pytest.mark.timeout(3700)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("image", ["trainer", "generator"])
def test_the_other_lists_can_be_installed(image: str, device: str, tmp_path: Path) -> None:
    """As their Dockerfiles install them, short of unpacking; the index for CPU builds comes from
    pip's own settings.
    """
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=400)
    alone = ["--no-deps"] if device == "cpu" else []
    listed = str(ROOT / "requirements" / f"{image}-{device}.txt")
    done = subprocess.run(
        [
            str(tmp_path / "venv" / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--dry-run",
            *alone,
            "-r",
            listed,
        ],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@INSTALLS
@pytest.mark.timeout(1800)
def test_the_control_list_installs_into_a_fresh_environment(tmp_path: Path) -> None:
    """As Dockerfile.control does it: the list, the wheel, nothing else; then the programs start."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=400)
    python = str(tmp_path / "venv" / "bin" / "python")

    def pip(*arguments: str) -> None:
        done = subprocess.run(
            [python, "-m", "pip", *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "build")], check=True, timeout=400)
    builder = str(tmp_path / "build" / "bin" / "python")
    for command in (
        ["install", "-q", "--no-deps", "-r", str(ROOT / "requirements" / "build.txt")],
        [
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(tmp_path / "wheel"),
            str(ROOT),
        ],
    ):
        subprocess.run([builder, "-m", "pip", *command], check=True, timeout=600)
    pip("install", "-q", "--no-deps", "-r", str(ROOT / "requirements" / "control.txt"))
    pip("install", "-q", "--no-deps", *(str(path) for path in (tmp_path / "wheel").glob("*.whl")))
    pip("check")
    for module in (
        "rollcast.forecaster",
        "rollcast.autoscaler",
        "rollcast.grader",
        "rollcast.cli.main",
    ):
        done = subprocess.run(
            [python, "-m", module, "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
    torch = subprocess.run(
        [python, "-c", "import torch"], capture_output=True, timeout=60, check=False
    )
    assert torch.returncode != 0
