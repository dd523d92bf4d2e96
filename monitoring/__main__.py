"""Writes what the chart takes from helm/rollcast/files, and docs/reference/dashboards.md: `python
-m monitoring`.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.alerts import rules_file
from monitoring.compare_dashboard import compare_dashboard
from monitoring.episodes_dashboard import episodes_dashboard
from monitoring.fleet_dashboard import fleet_dashboard
from monitoring.page import page
from monitoring.pipeline_dashboard import pipeline_dashboard
from monitoring.run_dashboard import run_dashboard

ROOT = Path(__file__).parents[1]
FILES = Path("helm/rollcast/files")
PAGE = Path("docs/reference/dashboards.md")


def dashboards() -> dict[str, Dashboard]:
    """By the name of the file."""
    return {
        "run": run_dashboard(),
        "pipeline": pipeline_dashboard(),
        "compare": compare_dashboard(),
        "fleet": fleet_dashboard(),
        "episodes": episodes_dashboard(),
    }


def generated() -> dict[Path, str]:
    """Text by file, relative to the repository's root."""
    boards = dashboards()
    texts = {
        FILES / "dashboards" / f"{name}.json": json.dumps(
            board, cls=JSONEncoder, indent=1, sort_keys=True
        )
        + "\n"
        for name, board in boards.items()
    }
    return {FILES / "rules.yaml": rules_file(), PAGE: page(boards), **texts}


if __name__ == "__main__":
    for file, text in generated().items():
        (ROOT / file).write_text(text)
