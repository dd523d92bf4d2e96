"""The manifests for clusters without Helm, as helm/manifests.py renders them."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import yaml

PROFILES = ("cpu", "8xh100")
SCRIPT = Path(__file__).parents[1] / "helm" / "manifests.py"


@functools.cache
def manifest_texts() -> dict[str, str]:
    """Profile -> YAML."""
    texts: dict[str, str] = runpy.run_path(str(SCRIPT))["manifests"]()
    return texts


def manifests(profile: str) -> list[dict[str, Any]]:
    return [
        item for item in yaml.load_all(manifest_texts()[profile], Loader=yaml.CSafeLoader) if item
    ]
