"""The checks of tests/trainer/test_architectures.py on the two most used: a dense Qwen3, and one with experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.tiny_model import make_architecture
from tests.trainer import test_architectures

globals().update({name: test for name, test in vars(test_architectures).items() if name.startswith("test_")})


@pytest.fixture(scope="module", params=["qwen3", "qwen3_moe"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    make_architecture(folder, request.param)
    return folder
