"""Metrics of the loggers."""

from rollcast.telemetry.metric import Metric

LOGGER_UP = Metric(
    "rollcast_logger_up", "1 while the logger's destination takes records", ("logger",)
)
LOGGER_TOLD = Metric("rollcast_logger_records_total", "Records of the run folder sent", ("logger",))
LOGGER_WAITING = Metric(
    "rollcast_logger_waiting_records",
    "Records read from the run folder and not taken yet",
    ("logger",),
)
LOGGER_DROPPED = Metric(
    "rollcast_logger_dropped_total",
    "Records or numbers left out, by reason (refused|unreadable|not_finite)",
    ("logger", "reason"),
)
