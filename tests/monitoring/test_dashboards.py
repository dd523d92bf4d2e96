"""The committed files are what the code builds, and Grafana's schema knows every word of the
dashboards.
"""

from __future__ import annotations

import json
import re
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grafana_foundation_sdk")

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.__main__ import ROOT, generated
from rollcast.telemetry.all_metrics import all_metrics
from testkit.monitoring.grafana import DASHBOARDS, load, panels

GRID = 24
MAX_BYTES = 1 << 20
"""Of a ConfigMap."""


def test_the_committed_files_are_the_generated_ones() -> None:
    for file, text in generated().items():
        assert (ROOT / file).read_text() == text, f"{file}: run `python -m monitoring`"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_follows_the_schema(path: Path) -> None:
    """Grafana's SDK is made from its schema: what it does not know it drops, and every value has a
    declared type.
    """
    register_default_plugins()
    board = load(path)
    for panel in panels(board):
        if (
            panel["datasource"]["uid"] == "-- Mixed --"
        ):  # the SDK reads queries by their panel's source, not their own
            panel["datasource"] = panel["targets"][0]["datasource"]
    read = Dashboard.from_json(board)
    assert not list(_lost(board, json.loads(json.dumps(read, cls=JSONEncoder)), "dashboard"))
    assert not list(_ill_typed(read, "dashboard"))


def test_the_check_of_types_finds_what_is_wrong() -> None:
    register_default_plugins()
    board = load(DASHBOARDS[0])
    board["refresh"] = 30
    board["panels"][1]["gridPos"]["w"] = "wide"
    board["panels"][1]["titel"] = "Runs"
    read = Dashboard.from_json(board)
    ill_typed = " ".join(_ill_typed(read, "dashboard"))
    assert "dashboard.refresh" in ill_typed
    assert "'wide'" in ill_typed
    assert list(_lost(board, json.loads(json.dumps(read, cls=JSONEncoder)), "dashboard")) == [
        "dashboard.panels.1.titel"
    ]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_is_whole(path: Path) -> None:
    board = load(path)
    assert board["uid"] == f"rollcast-{path.stem}"
    assert path.stat().st_size < MAX_BYTES
    everything = [
        *board["panels"],
        *(inner for panel in board["panels"] for inner in panel.get("panels", [])),
    ]
    ids = [panel["id"] for panel in everything]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in covered) < GRID
        assert not covered & cells, f"{panel['title']} lies over another panel"
        cells |= covered
    for y in {y for _, y in cells}:
        assert {x for x, row in cells if row == y} == set(range(GRID)), f"row {y} is not filled"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_is_described_and_asks_by_the_dashboards_variables(path: Path) -> None:
    board = load(path)
    offered = {variable["name"] for variable in board["templating"]["list"]}
    page = (ROOT / "docs" / "reference" / "dashboards.md").read_text()
    for panel in panels(board):
        assert len(panel["description"]) > 10
        assert f"| {panel['title']} | {panel['description']} |" in page
        for target in panel["targets"]:
            source = target["datasource"]
            assert source["type"] == "prometheus"
            used = set(re.findall(r"\$\{?([a-z_]\w*)", target["expr"] + source["uid"]))
            assert used <= offered | {"__range", "__rate_interval"}
            assert used & {"run", "runs"}, f"{panel['title']} asks for every run at once"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_every_metric_asked_for_exists() -> None:
    """Histograms with their suffixes."""
    known = set()
    for metric in all_metrics():
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        known |= {metric.name + ending for ending in endings}
    text = "".join(path.read_text() for path in DASHBOARDS)
    asked = set(re.findall(r"rollcast_\w+", text))
    assert len(asked) > 50
    assert asked <= known, asked - known


def _lost(before: Any, after: Any, place: str) -> typing.Iterator[str]:
    """Places whose value the SDK did not keep; defaults that it adds do not count."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from _lost(value, after.get(key), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _lost(old, new, f"{place}.{index}")
    elif before != after:
        yield place


def _ill_typed(value: Any, place: str) -> typing.Iterator[str]:
    """Places in SDK objects whose value is not of the declared type."""
    module = __import__(type(value).__module__, fromlist=["_"])
    for name, declared in typing.get_type_hints(type(value), vars(module)).items():
        yield from _mismatch(getattr(value, name, None), declared, f"{place}.{name}")


def _mismatch(value: Any, declared: Any, place: str) -> typing.Iterator[str]:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared in (object, Any):
        return
    if origin in (typing.Union, types.UnionType):
        tried = [list(_mismatch(value, option, place)) for option in arguments]
        if all(tried):
            yield from max(
                tried, key=lambda places: max(len(found.partition(":")[0]) for found in places)
            )
    elif declared is type(None):
        if value is not None:
            yield f"{place}: {value!r} is not None"
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{place}: {value!r} is not one of {arguments}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{place}: {value!r} is no list"
            return
        for index, item in enumerate(value):
            yield from _mismatch(item, arguments[0], f"{place}[{index}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is no mapping"
            return
        for key, item in value.items():
            yield from _mismatch(item, arguments[1], f"{place}.{key}")
    elif isinstance(value, dict) and hasattr(
        declared, "from_json"
    ):  # the SDK left it as it was read
        read = declared.from_json(value)
        yield from _lost(value, json.loads(json.dumps(read, cls=JSONEncoder)), place)
        yield from _ill_typed(read, place)
    elif isinstance(declared, type):
        accepted: tuple[type, ...] | type = (int, float) if declared is float else declared
        if issubclass(declared, Enum):
            accepted = (declared, str, int)
        if not isinstance(value, accepted) or (
            isinstance(value, bool) and declared in (int, float)
        ):
            yield f"{place}: {value!r} is not {declared.__name__}"
        elif hasattr(value, "to_json"):
            yield from _ill_typed(value, place)
