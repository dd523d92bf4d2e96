"""The choices at the top of a dashboard."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import VariableOption, VariableRefresh, VariableSort

from monitoring.panels import METRICS
from rollcast.telemetry import forecaster_metrics, trainer_metrics

RUN = 'namespace="$namespace",run="$run"'
OF_THE_FORECASTER = 'run="$run"'
"""Its own query API knows the runs that it reads, and no namespaces."""
RUNS = 'namespace="$namespace",run=~"$runs"'
_KNOWN = (
    f'__name__=~"{trainer_metrics.TRAINER_STEP.name}|{forecaster_metrics.FORECAST_POINTS.name}"'
)
_RUNS = f'label_values({{namespace="$namespace",{_KNOWN}}}, run)'


def data_source() -> Any:
    """The Prometheus that scrapes the run; no forecaster, whatever stands first in the list."""
    return (
        dashboard.DatasourceVariable("datasource")
        .label("Prometheus")
        .type("prometheus")
        .regex("/^(?!.*forecast)/i")
    )


def forecaster() -> Any:
    """The forecaster as a second data source, found by its name."""
    return (
        dashboard.DatasourceVariable("forecaster")
        .label("Forecaster")
        .type("prometheus")
        .regex("/forecast/i")
    )


def namespace() -> Any:
    """Runs of one name in two namespaces are two runs.

    Outside of a cluster there is no namespace to choose.
    """
    return _query("namespace", "Namespace", f"label_values({{{_KNOWN}}}, namespace)").current(
        _own("@NAMESPACE@")
    )


def run() -> Any:
    return _query("run", "Run", _RUNS).current(_own("@RUN@"))


def runs() -> Any:
    return _query("runs", "Runs", _RUNS).multi(True).include_all(True)


def target() -> Any:
    """A pass rate whose cost is asked for."""
    return dashboard.TextBoxVariable("target").label("Target pass rate").default_value("0.8")


def _own(value: str) -> VariableOption:
    """What a dashboard shows first: the chart puts its own run there.

    What Grafana does not know, it replaces.
    """
    return VariableOption(text=value, value=value)


def _query(name: str, label: str, query: str) -> Any:
    variable = dashboard.QueryVariable(name).label(label).query(query).datasource(METRICS)
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
        VariableSort.ALPHABETICAL_ASC
    )
