"""Every metric of Rollcast: name with base unit, help, type, labels. Each module has those of one
exporter.

The forecaster, the dashboards and the alerts read the names from there; renaming one is one diff.
Every series also carries the label `run`.
"""

from rollcast.telemetry import (
    autoscaler_metrics,
    episode_metrics,
    evaluation_metrics,
    forecaster_metrics,
    generator_metrics,
    grader_metrics,
    logger_metrics,
    trainer_metrics,
    wire_metrics,
)
from rollcast.telemetry.metric import Metric

MODULES = (
    trainer_metrics,
    evaluation_metrics,
    episode_metrics,
    wire_metrics,
    generator_metrics,
    grader_metrics,
    forecaster_metrics,
    logger_metrics,
    autoscaler_metrics,
)
"""Modules in the order of the reference page."""


def all_metrics() -> tuple[Metric, ...]:
    """Every metric of these modules."""
    return tuple(
        value for module in MODULES for value in vars(module).values() if isinstance(value, Metric)
    )
