"""Charts of earlier commits, by their defaults, and upgrades from them with `--reuse-values`."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from helm.added_values import EARLIER, read
from tests.chart.rendering import CHART, Object, merged

NUMBERS = sorted((path.stem for path in EARLIER.glob("*.yaml")), key=int)


def earlier_defaults(number: str) -> Object:
    return read(EARLIER / f"{number}.yaml")


def upgraded(before: Object, user: Object, folder: Path) -> Path:
    """The chart as Helm renders it with --reuse-values: its defaults are the earlier ones and what
    the user had set.
    """
    copied = shutil.copytree(CHART, folder / "rollcast")
    (copied / "values.yaml").write_text(yaml.safe_dump(merged(before, user)))
    return copied


def without_secrets(objects: list[Object]) -> list[Object]:
    """Without credentials, which are random where no cluster is asked."""
    return [item for item in objects if item["kind"] != "Secret"]
