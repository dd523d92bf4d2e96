"""The manifests for clusters without Helm, as helm/manifests.py renders them."""

from __future__ import annotations

import functools
import runpy

import yaml

from tests.chart.rendering import ROOT, Object

PROFILES = ("cpu", "8xh100")
SCRIPT = ROOT / "helm" / "manifests.py"


@functools.cache
def manifest_texts() -> dict[str, str]:
    """Profile -> YAML."""
    texts: dict[str, str] = runpy.run_path(str(SCRIPT))["manifests"]()
    return texts


def manifests(profile: str) -> list[Object]:
    return [item for item in yaml.load_all(manifest_texts()[profile], Loader=yaml.CSafeLoader) if item]
