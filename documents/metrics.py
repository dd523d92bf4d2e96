"""Every metric, from the one place that names them."""

from __future__ import annotations

from documents.tables import table
from rollcast.telemetry.all_metrics import all_metrics

INTRODUCTION = """# Metrics

Every service serves its own at `/metrics`. Each series also has the label `run`. Alerts and
dashboards: [monitoring](../monitoring.md).

"""


def metrics_page() -> str:
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in all_metrics()
    ]
    return INTRODUCTION + table(("metric", "kind", "labels", "meaning"), rows).rstrip() + "\n"
