"""Grafana's transformations of tables, as far as the dashboards use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testkit.monitoring.grafana import Answer

Row = dict[str, Any]


def table(panel: dict[str, Any], answers: Sequence[Answer]) -> list[Row]:
    """Rows of a panel: labels and values of its queries, its transformations applied in order."""
    frames = []
    for place, answer in enumerate(answers):
        name = "Value" if len(answers) == 1 else f"Value #{chr(ord('A') + place)}"
        frames.append([{**labels, name: values[-1][1]} for labels, values in answer.rows])
    for step in panel["transformations"]:
        frames = _STEPS[step["id"]](frames, step["options"])
    return frames[0]


def _merge(frames: list[list[Row]], _: dict[str, Any]) -> list[list[Row]]:
    """Rows of all frames that agree in their common columns become one; here that is `run`."""
    merged: dict[str, Row] = {}
    for row in (row for frame in frames for row in frame):
        merged.setdefault(row["run"], {}).update(row)
    return [list(merged.values())]


def _numbers(frames: list[list[Row]], options: dict[str, Any]) -> list[list[Row]]:
    fields = [conversion["targetField"] for conversion in options["conversions"]]
    return [
        [row | {field: float(row[field]) for field in fields} for row in frame] for frame in frames
    ]


def _group(frames: list[list[Row]], options: dict[str, Any]) -> list[list[Row]]:
    (by,) = (name for name, field in options["fields"].items() if field["operation"] == "groupby")
    (of,) = (name for name, field in options["fields"].items() if field["operation"] == "aggregate")
    groups: dict[str, Row] = {}
    for row in frames[0]:
        group = groups.setdefault(row[by], {by: row[by], f"{of} (min)": row[of]})
        group[f"{of} (min)"] = min(group[f"{of} (min)"], row[of])
    return [list(groups.values())]


def _organize(frames: list[list[Row]], options: dict[str, Any]) -> list[list[Row]]:
    hidden = {name for name, hide in options.get("excludeByName", {}).items() if hide}
    names = options["renameByName"]
    return [
        [
            {names.get(name, name): value for name, value in row.items() if name not in hidden}
            for row in frame
        ]
        for frame in frames
    ]


_STEPS = {"merge": _merge, "convertFieldType": _numbers, "groupBy": _group, "organize": _organize}
