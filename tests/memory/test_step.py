"""A step as it is counted against the tensors that torch's own tracker saw while the learner made
it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollcast.memory.trainer import RankMemory
from testkit.model_shapes import make_shape
from tests.memory.tracked_step import CASES, run_config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def peaks(folder: Path) -> list[int]:
    """Bytes at the fullest moment of each case."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.tracked_step", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'services'}"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "index", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES]
)
def test_the_fullest_moment_of_a_step_is_the_one_that_is_counted(
    index: int, folder: Path, peaks: list[int]
) -> None:
    ranks, model = CASES[index][:2]
    written: dict[str, Any] = json.loads((folder / model / "config.json").read_text())
    config = run_config(folder / model, CASES[index])
    memory = RankMemory(make_shape(written), config, "cpu", 0, ranks)
    totals = {
        moment.name: moment.total
        - moment.parts["staging"]
        - moment.parts["checkpoint"]  # neither is made here
        for moment in memory.moments()
        if moment.name not in ("publish", "checkpoint")
    }
    assert max(totals.values()) == pytest.approx(peaks[index], rel=0.06)
