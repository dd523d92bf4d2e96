"""The experts of a layer get into vLLM's own model as whole stacks, with the same result as its
loader's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.tiny_model import make_architecture

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
EXPERT_COPIES = {"qwen3_moe": 2 * 8 * 3, "mixtral": 2 * 4 * 3}
"""Layers with experts, experts, projections: what vLLM's own loader copies one by one."""
STACK_COPIES = 2 * 2
"""Layers with experts, stacks of each."""


@pytest.mark.parametrize("architecture", EXPERT_COPIES)
def test_a_stack_of_experts_is_one_copy(architecture: str, tmp_path: Path) -> None:
    make_architecture(tmp_path / "model", architecture)
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'services'}{os.pathsep}{ROOT}",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "EXPERT_COPIES_STORE": str(tmp_path / "store"),
    }
    command = [
        sys.executable,
        "-m",
        "tests.generator.expert_copies",
        str(tmp_path / "model"),
        "cpu",
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["same"]
    assert counted["vllm"] - counted["ours"] == EXPERT_COPIES[architecture] - STACK_COPIES
