"""The tutorial's own data and run file, from its page, on the tests' model: fewer steps, else as it
stands there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rollcast.config.run import load_run_config
from testkit.system.audit import read_lines
from tests.documents.documented import ROOT, fenced

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]

STEPS = 4


def test_the_tutorial_trains_what_its_page_says(tmp_path: Path, model_folder: Path) -> None:
    files = {
        block.title: block.text for block in fenced(ROOT / "docs" / "tutorial.md") if block.title
    }
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "arithmetic").symlink_to(model_folder)
    text, changed = re.subn(
        r"budget: {steps: \d+}", f"budget: {{steps: {STEPS}}}", files["sums.yaml"]
    )
    assert changed == 1
    (tmp_path / "sums.yaml").write_text(text)
    (tmp_path / "make_data.py").write_text(files["make_data.py"])
    subprocess.run([sys.executable, "make_data.py"], cwd=tmp_path, check=True, timeout=60)
    assert len((tmp_path / "sums.jsonl").read_text().splitlines()) == 2000

    said = rollcast(tmp_path, "up", "--config", "sums.yaml")
    folder = tmp_path / "runs" / "sums"
    assert [line["step"] for line in read_lines(folder / "steps.jsonl")] == list(
        range(1, STEPS + 1)
    )
    assert [line["step"] for line in read_lines(folder / "evaluations.jsonl")] == [0, 3, STEPS]
    assert load_run_config(folder / "run.json").tasks.evaluation.num_prompts == 64
    assert "live page: http://127.0.0.1:" in said
    assert (folder / "model" / "model.safetensors").exists()
    assert (folder / "samples.jsonl").exists()
    assert "of the 5 evaluations that a forecast needs" in rollcast(tmp_path, "fit", "runs/sums")


def rollcast(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
