"""The profiles for GPUs, and the command by which the chart checks them before an install."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import PROFILES, ROOT, merged, one, pod_of, render
from tests.cli.command import rollcast

ON_GPUS = [name for name in PROFILES if name != "cpu"]


def hook(values: dict[str, Any], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What the hook's command answers, with `more` arguments; its files are in `folder` instead."""
    objects = render(values)
    (container,) = pod_of(objects, "check").spec["containers"]
    for name, text in one(objects, "ConfigMap", "-check")["data"].items():
        (folder / name).write_text(text)
    command = [*container["command"][1:], *container["args"], *more]
    return rollcast(*(word.replace("/etc/rollcast", str(folder)) for word in command))


def one_role(values: dict[str, Any], role: str) -> dict[str, Any]:
    resources: dict[str, Any] = merged(profile_defaults(), values)[role]["resources"]
    return resources


def profile_defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = yaml.safe_load((ROOT / "helm" / "rollcast" / "values.yaml").read_text())
    return defaults
