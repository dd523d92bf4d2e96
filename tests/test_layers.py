"""The import contracts of pyproject.toml bite, and what must start quickly imports nothing heavy.

`make check` holds the code to the contracts; here each is shown to see the import that it forbids.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "rollcast": "services/rollcast",
    **{name: name for name in ("testkit", "benchmarks", "lab", "tests")},
}
FORBIDDEN = {
    "Layers": ("rollcast/config/run.py", "rollcast.tasks"),
    "Decisions follow from the posterior, the posterior from the law": (
        "rollcast/scaling/posterior/turns.py",
        "rollcast.scaling.decisions.verdict",
    ),
    "Only the generator imports vLLM": ("rollcast/trainer/learner/ranks.py", "vllm"),
    "No torch where a decision or a forecast is made": ("rollcast/scaling/law/curve.py", "torch"),
    "Only the autoscaler and the pods of episodes talk to Kubernetes": (
        "rollcast/telemetry/exporter.py",
        "kubernetes",
    ),
    "The grader knows no Redis": ("rollcast/grader/service.py", "redis"),
    "Protobuf stays behind the codecs and the wires": (
        "rollcast/recipe/staleness.py",
        "rollcast.wire",
    ),
    "The library does not import the command line": ("rollcast/python.py", "rollcast.cli.main"),
    "The command line starts services through `local` alone": (
        "rollcast/cli/main.py",
        "rollcast.forecaster",
    ),
    "Only curves/columns and the readers look at a column's name": (
        "rollcast/curves/outcomes.py",
        "rollcast.curves.columns.words",
    ),
    "The trainer's control imports no torch itself": (
        "rollcast/trainer/control/pacing.py",
        "torch",
    ),
    "Tests and benchmarks stand on the testkit, never on each other": (
        "benchmarks/__init__.py",
        "tests.only_these",
    ),
    "Nothing but tests stands on the lab": ("benchmarks/__init__.py", "lab"),
    "No import circles": ("rollcast/scaling/law/curve.py", "rollcast.scaling.decisions.forecast"),
}
"""Contract -> a file and what it must not import."""


def lint(folder: Path) -> tuple[int, dict[str, str]]:
    """Exit code; contract -> KEPT or BROKEN, over the packages in a folder."""
    program = (
        "import sys; from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True))"
    )
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    words = (line.split(" (")[0].rsplit(" ", 1) for line in done.stdout.splitlines())
    return done.returncode, {name[0]: name[1] for name in words if name[-1] in ("KEPT", "BROKEN")}


def test_every_contract_sees_the_import_that_it_forbids(tmp_path: Path) -> None:
    pytest.importorskip("importlinter")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, source in PACKAGES.items():
        shutil.copytree(
            ROOT / source,
            tmp_path / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.xz", "*.json"),
        )
    contracts = [
        item["name"]
        for item in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
            "contracts"
        ]
    ]
    assert set(FORBIDDEN) == set(contracts)
    for file, forbidden in FORBIDDEN.values():
        with (tmp_path / file).open("r+") as stream:
            stream.seek(0, os.SEEK_END)
            stream.write(f"\nimport {forbidden}\n")
    code, found = lint(tmp_path)
    assert found == dict.fromkeys(contracts, "BROKEN")
    assert code != 0


def test_no_test_module_is_imported() -> None:
    """What tests share lies beside them, or in the testkit: whoever reads a test module reads
    tests.
    """
    imported = re.compile(r"^\s*(from|import) tests(\.\w+)*\.test_\w+", re.MULTILINE)
    found = {
        str(path.relative_to(ROOT))
        for path in Path(__file__).parent.rglob("*.py")
        if imported.search(path.read_text())
    }
    assert sorted(found) == []


QUICK = {
    "rollcast.cli.main": (
        "torch", "transformers", "vllm", "scipy", "numpy", "fastapi", "matplotlib", "httpx",
        "pydantic",
    ),
    "rollcast.config.run": ("torch", "numpy", "scipy", "redis", "grpc"),
    "rollcast.telemetry.all_metrics": ("torch", "numpy", "prometheus_client"),
    "rollcast.local.up": ("torch", "transformers", "vllm", "scipy", "fastapi"),
    "rollcast.cli.views": ("torch", "transformers", "vllm", "scipy", "fastapi"),
}  # fmt: skip
"""Module -> what it must not import; those with the most of it first."""
IMPORT = """
import json, sys
from importlib import import_module

for module, heavy in json.loads(sys.argv[1]).items():
    import_module(module)
    print(module, *sorted(set(heavy) & set(sys.modules)), sep="\\t")
"""


def test_what_must_start_quickly_imports_nothing_heavy() -> None:
    """One after the other in one process: each is held to what it and those before it import."""
    command = [sys.executable, "-c", IMPORT, json.dumps(QUICK)]
    imported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert imported.stdout.splitlines() == list(QUICK)
