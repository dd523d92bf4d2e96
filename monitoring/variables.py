"""What is chosen at the top of a dashboard."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import VariableRefresh, VariableSort

from monitoring.panels import METRICS
from rollcast.telemetry import names

RUN = 'run="$run"'
RUNS = 'run=~"$runs"'
_KNOWN = f'label_values({{__name__=~"{names.TRAINER_STEP.name}|{names.FORECAST_POINTS.name}"}}, run)'


def data_source() -> Any:
    """The Prometheus that scrapes the run; no forecaster, whatever stands first in the list."""
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus").regex("/^(?!.*forecast)/i")


def forecaster() -> Any:
    """The forecaster as a second data source, found by its name."""
    return dashboard.DatasourceVariable("forecaster").label("Forecaster").type("prometheus").regex("/forecast/i")


def run() -> Any:
    return _query("run", "Run")


def runs() -> Any:
    return _query("runs", "Runs").multi(True).include_all(True)


def target() -> Any:
    """A pass rate whose cost is asked for."""
    return dashboard.TextBoxVariable("target").label("Target pass rate").default_value("0.8")


def _query(name: str, label: str) -> Any:
    variable = dashboard.QueryVariable(name).label(label).query(_KNOWN).datasource(METRICS)
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
