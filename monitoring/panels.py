"""Grafana panels with this project's habits: one way to draw a line, a number, a state, a table, a
curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
    trend,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

METRICS = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
FORECASTER = models.DataSourceRef(type_val="prometheus", uid="${forecaster}")
"""The forecaster's own query API: samples beyond now, which Prometheus refuses."""
_MIXED = models.DataSourceRef(type_val="datasource", uid="-- Mixed --")

SHARE = "percentunit"
SECONDS = "s"
HOURS = "device-hours"
READINGS = "measured"
_BAND_COLOUR = "blue"
Panel = Any
"""A panel's builder; the SDK has no common class for them."""


@dataclass(frozen=True)
class Query:
    """Attributes: expression; legend with {{label}}; source; whether it is asked once instead of
    over time.
    """

    expression: str
    legend: str = ""
    source: models.DataSourceRef = METRICS
    once: bool = False

    def target(self, ref_id: str, query_format: PromQueryFormat) -> prometheus.Dataquery:
        built = (
            prometheus.Dataquery()
            .expr(self.expression)
            .ref_id(ref_id)
            .datasource(self.source)
            .format(query_format)
        )
        built = built.legend_format(self.legend) if self.legend else built
        return built.instant() if self.once else built.range()


def lines(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    width: int,
    height: int = 8,
    unit: str = "short",
    bounds: tuple[float | None, float | None] = (None, None),
    stacked: bool = False,
    overrides: Mapping[str, dict[str, Any]] | None = None,
    empty: str = "",
) -> Panel:
    """Series over time. `overrides`: properties by the series' name, or by /expression/ of names.
    `empty` is said where nothing is found."""
    panel = (
        timeseries.Panel().unit(unit).line_width(1).show_points(common_models.VisibilityMode.AUTO)
    )
    panel = _bounded(panel, bounds).fill_opacity(60 if stacked else 0)
    if stacked:
        panel = panel.stacking(
            common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A")
        )
    panel = panel.no_value(empty) if empty else panel
    panel = panel.legend(_legend()).tooltip(_tooltip())
    return _finish(panel, title, description, queries, width, height, overrides)


def band(*, measured: str | None = None) -> dict[str, dict[str, Any]]:
    """Overrides that draw the series 0.05 to 0.95 as a band around 0.5, and `measured`
    as points.
    """
    thin = {
        "color": _fixed(_BAND_COLOUR),
        "custom.lineWidth": 0,
        "custom.fillOpacity": 15,
        "custom.spanNulls": True,
    }
    overrides: dict[str, dict[str, Any]] = {
        "0.05": thin | {"custom.fillOpacity": 0},
        "0.25": thin | {"custom.fillOpacity": 0},
        "0.5": {"color": _fixed(_BAND_COLOUR), "custom.lineWidth": 2, "custom.spanNulls": True},
        "0.75": thin | {"custom.fillBelowTo": "0.25"},
        "0.95": thin | {"custom.fillBelowTo": "0.05"},
    }
    if measured is not None:
        overrides[measured] = {
            "color": _fixed("orange"),
            "custom.drawStyle": "points",
            "custom.pointSize": 6,
        }
    return overrides


def number(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    width: int,
    height: int = 5,
    unit: str = "short",
    decimals: int | None = 3,
    name_only: bool = False,
) -> Panel:
    """Last values, large."""
    text = common_models.BigValueTextMode
    panel = stat.Panel().unit(unit).graph_mode(common_models.BigValueGraphMode.NONE)
    panel = panel if decimals is None else panel.decimals(decimals)
    panel = panel.text_mode(text.NAME if name_only else text.VALUE_AND_NAME).color_mode(
        common_models.BigValueColorMode.NONE
    )
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _finish(panel, title, description, queries, width, height)


def gauges(
    title: str, description: str, queries: Sequence[Query], *, width: int, height: int = 8
) -> Panel:
    """Last values of shares as horizontal bars."""
    panel = (
        bargauge.Panel()
        .unit(SHARE)
        .min(0)
        .max(1)
        .orientation(common_models.VizOrientation.HORIZONTAL)
    )
    panel = panel.display_mode(common_models.BarGaugeDisplayMode.BASIC)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _finish(panel, title, description, queries, width, height)


def states(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    width: int,
    height: int = 8,
    empty: str = "",
) -> Panel:
    """Which of several states held when: 1 = it does. `empty` is said where nothing is found."""
    panel = statetimeline.Panel().show_value(common_models.VisibilityMode.NEVER).merge_values(True)
    panel = panel.no_value(empty) if empty else panel
    mapping = models.ValueMap(
        options={
            "0": models.ValueMappingResult(text="no", color="transparent", index=0),
            "1": models.ValueMappingResult(text="yes", color="blue", index=1),
        }
    )
    return _finish(
        panel.mappings([mapping]).legend(_legend(show=False)),
        title,
        description,
        queries,
        width,
        height,
    )


def rows(
    title: str,
    description: str,
    queries: Sequence[Query],
    transformations: Sequence[tuple[str, dict[str, Any]]],
    *,
    width: int,
    height: int = 8,
    overrides: Mapping[str, dict[str, Any]] | None = None,
    empty: str = "",
) -> Panel:
    """A table. `empty` is said where nothing is found."""
    panel = table.Panel().decimals(3)
    panel = panel.no_value(empty) if empty else panel
    panel = panel.transformations(
        [models.DataTransformerConfig(id_val=name, options=o) for name, o in transformations]
    )
    return _finish(
        panel, title, description, queries, width, height, overrides, PromQueryFormat.TABLE
    )


def curve(
    title: str,
    description: str,
    expression: str,
    *,
    abscissa: str,
    width: int,
    height: int,
    overrides: Mapping[str, dict[str, Any]],
    legend: bool = True,
) -> Panel:
    """Curves against something else than time: one table of (series, at, value), made a column for
    each series.
    """
    pivoted = r"at\series"
    steps: list[tuple[str, dict[str, Any]]] = [
        (
            "groupingToMatrix",
            {
                "columnField": "series",
                "rowField": "at",
                "valueField": "Value",
                "emptyValue": "null",
            },
        ),
        (
            "convertFieldType",
            {"conversions": [{"targetField": pivoted, "destinationType": "number"}], "fields": {}},
        ),
        ("sortBy", {"fields": {}, "sort": [{"field": pivoted}]}),
        ("organize", {"excludeByName": {}, "indexByName": {}, "renameByName": {pivoted: abscissa}}),
    ]
    panel = trend.Panel().x_field(abscissa).unit(SHARE).decimals(2).line_width(2).span_nulls(True)
    panel = panel.show_points(common_models.VisibilityMode.NEVER).fill_opacity(0)
    panel = panel.transformations(
        [models.DataTransformerConfig(id_val=name, options=o) for name, o in steps]
    )
    panel = panel.legend(_legend(show=legend)).tooltip(_tooltip())
    scale = {
        "custom.scaleDistribution": {"type": "log", "log": 10},
        "unit": "short",
        "custom.axisLabel": abscissa,
    }
    return _finish(
        panel,
        title,
        description,
        [Query(expression, once=True)],
        width,
        height,
        {**overrides, abscissa: scale},
        PromQueryFormat.TABLE,
    )


def heat(title: str, description: str, query: Query, *, width: int, height: int = 8) -> Panel:
    """A histogram over time: one column for each moment, one row for each bucket."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .show_legend()
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
        )
    )
    return _finish(
        panel, title, description, [query], width, height, query_format=PromQueryFormat.HEATMAP
    )


def _finish(
    panel: Panel,
    title: str,
    description: str,
    queries: Sequence[Query],
    width: int,
    height: int,
    overrides: Mapping[str, dict[str, Any]] | None = None,
    query_format: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> Panel:
    mixed = any(query.source is not METRICS for query in queries)
    panel = panel.title(title).description(description).datasource(_MIXED if mixed else METRICS)
    panel = panel.span(width).height(height)
    for place, query in enumerate(queries):
        panel = panel.with_target(query.target(chr(ord("A") + place), query_format))
    for name, properties in (overrides or {}).items():
        values = [
            models.DynamicConfigValue(id_val=key, value=value) for key, value in properties.items()
        ]
        by_name = not name.startswith("/")
        panel = (panel.override_by_name if by_name else panel.override_by_regexp)(name, values)
    return panel


def _bounded(panel: Panel, bounds: tuple[float | None, float | None]) -> Panel:
    low, high = bounds
    panel = panel if low is None else panel.min(low)
    return panel if high is None else panel.max(high)


def _fixed(colour: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": colour}


def _legend(*, show: bool = True) -> common.VizLegendOptions:
    mode = common_models.LegendDisplayMode.LIST
    place = common_models.LegendPlacement.BOTTOM
    return common.VizLegendOptions().show_legend(show).display_mode(mode).placement(place).calcs([])


def _tooltip() -> common.VizTooltipOptions:
    return (
        common.VizTooltipOptions()
        .mode(common_models.TooltipDisplayMode.MULTI)
        .sort(common_models.SortOrder.DESCENDING)
    )


def assemble(
    name: str,
    title: str,
    description: str,
    sections: Sequence[tuple[str, Sequence[Panel]]],
    variables: Sequence[Any],
    *,
    time: tuple[str, str],
) -> models.Dashboard:
    """A dashboard of titled rows of panels, each row filling whole lines of 24 columns."""
    built = (
        dashboard.Dashboard(f"Rollcast / {title}").uid(f"rollcast-{name}").description(description)
    )
    built = built.tags(["rollcast"]).timezone("browser").time(*time).refresh("30s").readonly()
    built = built.tooltip(models.DashboardCursorSync.CROSSHAIR).variables(list(variables))
    link = (
        dashboard.DashboardLink("Rollcast")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags(["rollcast"])
    )
    built = built.link(link.as_dropdown(False).include_vars(True).keep_time(True))
    number_of_panel = 0
    for heading, panels in sections:
        number_of_panel += 1
        built = built.with_row(dashboard.Row(heading).id(number_of_panel))
        for panel in panels:
            number_of_panel += 1
            built = built.with_panel(panel.id(number_of_panel))
    return built.build()
