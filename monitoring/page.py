"""The reference page that lists alerts and panels: docs/reference/dashboards.md."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.alerts import ALERTS, COUNT, NUMBER, SHARE

HEAD = """# Alerts and dashboards

Every alert and every panel, from the code that makes them. How to switch them on:
[monitoring](../monitoring.md). What to do about an alert: [the runbook](../runbook.md).

<!-- Written by `python -m monitoring`. -->
"""


def page(dashboards: Mapping[str, Dashboard]) -> str:
    """The whole text."""
    return HEAD + _alerts() + "".join(_dashboard(name, board) for name, board in dashboards.items())


def _alerts() -> str:
    head = "\n## Alerts\n\n| alert | severity | for | summary |\n|---|---|---|---|\n"
    return head + "".join(
        f"| [{alert.name}](../runbook.md#{alert.anchor}) | {alert.severity} | "
        f"{_plain(alert.holds_for)} | "
        f"{_plain(alert.summary)} |\n"
        for alert in ALERTS
    )


def _plain(text: str) -> str:
    """Templates and placeholders replaced by their usual values."""
    text = text.replace("@NO_STEP_MINUTES@", "30")
    for template in (COUNT, NUMBER, SHARE):
        text = text.replace(template, "..")
    return text


def _dashboard(name: str, board: Dashboard) -> str:
    lines = [
        f"\n## {board.title}\n",
        f"{board.description}\n",
        f"![{board.title}](../images/dashboard-{name}.png)\n",
    ]
    for panel in board.panels or []:
        if panel.type_val == "row":
            lines.append(f"\n**{panel.title}**\n\n| panel | shows |\n|---|---|")
        else:
            lines.append(f"| {panel.title} | {getattr(panel, 'description', '')} |")
    return "\n".join(lines) + "\n"
