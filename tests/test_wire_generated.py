"""The committed protobuf code is what the sources in proto/ give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "proto/rollcast/wire").glob("*.proto"))


def test_generated_code_does_not_drift(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    assert SOURCES
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{ROOT / 'proto'}",
        f"--python_out={tmp_path}",
    ]
    command += [f"--pyi_out={tmp_path}", f"--grpc_python_out={tmp_path}", *map(str, SOURCES)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    fresh = {path.name: path.read_text() for path in (tmp_path / "rollcast/wire").iterdir()}
    # The rollout messages travel over Redis: they have no service, and their empty gRPC module is
    # not kept.
    fresh.pop("rollout_pb2_grpc.py")
    committed = {
        path.name: path.read_text() for path in (ROOT / "services/rollcast/wire").glob("*_pb2*")
    }
    assert sorted(fresh) == sorted(committed)
    for name, text in fresh.items():
        assert committed[name] == text, f"{name} is not what proto/ gives: run `make wire`"
