"""The committed dashboards, their queries asked as Grafana would ask them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from testkit.monitoring.recording import Recording

FILES = Path(__file__).parents[2] / "helm" / "rollcast" / "files"
DASHBOARDS = tuple(sorted((FILES / "dashboards").glob("*.json")))
POINTS = 400
FORECASTER = "${forecaster}"


@dataclass(frozen=True)
class Answer:
    """Attributes: labels of each series; its (Unix seconds, value) pairs, one
    for an instant query.
    """

    rows: tuple[tuple[dict[str, str], tuple[tuple[float, float], ...]], ...]


def load(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Panels with queries, those in rows too."""
    for panel in board["panels"]:
        yield from (inner for inner in [panel, *panel.get("panels", [])] if inner["type"] != "row")


def substituted(text: str, recording: Recording, target: float) -> str:
    """The expression with the dashboard's variables in it, as
    for a range over the whole recording.
    """
    seconds = int(recording.at - recording.began) + 1
    values = {
        "namespace": recording.namespace,
        "run": recording.runs[-1],
        "runs": "|".join(recording.runs),
        "target": f"{target:g}",
        "__range": f"{seconds}s",
        "__rate_interval": f"{max(4 * recording.scrape_seconds, seconds // 30)}s",
    }
    return re.sub(r"\$\{?([a-z_]\w*)\}?", lambda variable: values[variable[1]], text)


def ask(target: dict[str, Any], recording: Recording, reach: float) -> Answer:
    """The answer to one query of a panel. `reach`: the target pass rate that a user would type."""
    ahead = target["datasource"]["uid"] == FORECASTER
    base = recording.forecaster if ahead else recording.prometheus
    expression = substituted(target["expr"], recording, reach)
    if target.get("instant"):
        return query(base, "query", query=expression, time=recording.at)
    seconds = recording.at - recording.began
    end = recording.at + (seconds if ahead else 0.0)
    return query(
        base,
        "query_range",
        query=expression,
        start=recording.began,
        end=end,
        step=max(1.0, seconds / POINTS),
    )


def query(base: str, path: str, **form: Any) -> Answer:
    """Ask a query API; a refused query fails."""
    answer = httpx.post(f"{base}/api/v1/{path}", data=form, timeout=30.0)
    assert answer.status_code == 200, f"{form['query']}\n{answer.text}"
    data = answer.json()["data"]
    rows = []
    for row in data["result"]:
        values = row["values"] if "values" in row else [row["value"]]
        rows.append((row["metric"], tuple((float(at), float(value)) for at, value in values)))
    return Answer(tuple(rows))
