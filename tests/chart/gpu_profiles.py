"""The profiles for GPUs, and the command by which the chart checks them before an install."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import PROFILES, ROOT, defaults, merged, one, pod_of, profile, render
from tests.cli.command import rollcast

ON_GPUS = [name for name in PROFILES if name != "cpu"]
LONG = "scalerl-32k"


def hook(values: dict[str, Any], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What the hook's command answers, with `more` arguments; its files are in `folder` instead."""
    objects = render(values)
    (container,) = pod_of(objects, "check").spec["containers"]
    for name, text in one(objects, "ConfigMap", "-check")["data"].items():
        (folder / name).write_text(text)
    command = [*container["command"][1:], *container["args"], *more]
    return rollcast(*(word.replace("/etc/rollcast", str(folder)) for word in command))


def check_fits(recipe: str, folder: Path) -> None:
    """The hook has no caution about a recipe's values after those of the study's profile."""
    values = merged(
        profile("scalerl-8b"),
        yaml.safe_load((ROOT / "helm" / "recipes" / f"{recipe}.yaml").read_text()),
    )
    if recipe == LONG:  # docs/kubernetes.md
        done = hook(values, folder)
        assert "caution: generator.slots = 40" in done.stdout
        assert "set it to 39" in done.stdout
        values = merged(values, {"config": {"generator": {"slots": 36}}})
    done = hook(values, folder)
    assert done.returncode == 0, done.stderr
    assert "caution" not in done.stdout


def one_role(values: dict[str, Any], role: str) -> dict[str, Any]:
    resources: dict[str, Any] = merged(defaults(), values)[role]["resources"]
    return resources
