"""Wrong run files: one table of changes to a right one, and what is said of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import yaml

from rollcast.config.environments.found import environment_classes
from rollcast.config.losses.found import loss_classes
from rollcast.config.model import Renderer

ROOT = Path(__file__).parents[2]
RIGHT: dict[str, Any] = yaml.safe_load(
    (ROOT / "helm" / "rollcast" / "values-cpu.yaml").read_text()
)["config"]
RIGHT["tasks"]["dataset"] = {"kind": "arithmetic", "size": 500}  # each command makes them all
RIGHT["model"]["path"] = "ours/arithmetic"  # a name on the hub: these tests have no such folder
LOSSES = ", ".join(one.model_fields["kind"].default for one in loss_classes())
ENVIRONMENTS = ", ".join(one.model_fields["kind"].default for one in environment_classes())
*_FIRST, _LAST = get_args(Renderer)
RENDERERS = f"{', '.join(_FIRST)} or {_LAST}"
TABLE = Path(__file__).with_name("wrong_run_files.yaml").read_text()
TABLE = TABLE.replace("{losses}", LOSSES).replace("{environments}", ENVIRONMENTS)
TABLE = TABLE.replace("{renderers}", RENDERERS)
WRONG: list[dict[str, Any]] = yaml.safe_load(TABLE)
NAMES = [f"{number}-{'-'.join(entry['change'])}" for number, entry in enumerate(WRONG)]


def changed(settings: Any, change: Any) -> Any:
    """As Helm merges values: mappings deeply, everything else is replaced.

    Another kind brings all of its settings.
    """
    if not (isinstance(settings, dict) and isinstance(change, dict)):
        return change
    if "kind" in settings and change.get("kind", settings["kind"]) != settings["kind"]:
        return change
    return settings | {key: changed(settings.get(key), value) for key, value in change.items()}
