"""The layers of pyproject.toml, checked: a wrong import fails here and is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_import_contract_is_kept() -> None:
    pytest.importorskip("importlinter")
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    checked = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("rollcast.cli.main", ("torch", "transformers", "vllm", "scipy", "numpy", "fastapi", "matplotlib", "httpx")),
        ("rollcast.config.run", ("torch", "numpy", "scipy", "redis", "grpc")),
        ("rollcast.telemetry.names", ("torch", "numpy", "prometheus_client")),
        ("rollcast.local.up", ("torch", "transformers", "vllm", "scipy", "fastapi")),
        ("rollcast.cli.views", ("torch", "transformers", "vllm", "scipy", "fastapi")),
    ],
)
def test_what_must_start_quickly_imports_nothing_heavy(module: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*sorted(set({heavy!r}) & set(sys.modules)))"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert imported.stdout.split() == []
