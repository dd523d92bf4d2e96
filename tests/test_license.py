"""The license goes with every wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("image", ["control", "trainer", "generator"])
def test_the_wheel_of_each_image_has_it(image: str, tmp_path: Path) -> None:
    """Built from nothing but what the Dockerfile copies before it builds."""
    stage = (
        (ROOT / f"Dockerfile.{image}").read_text().partition("AS wheel\n")[2].partition("FROM ")[0]
    )
    for copied, target in re.findall(r"^COPY (.*) (\S+)$", stage, re.MULTILINE):
        for source in copied.split():
            place = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            name.partition(".dist-info/")[2]: name
            for name in archive.namelist()
            if ".dist-info/" in name
        }
        metadata = Parser().parsestr(archive.read(texts["METADATA"]).decode())
        license = archive.read(texts["licenses/LICENSE"]).decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert license == (ROOT / "LICENSE").read_text()
    assert license.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in license
