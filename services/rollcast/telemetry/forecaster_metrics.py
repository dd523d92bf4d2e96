"""Metrics of the forecaster.

The compute grid is fixed per run (40 values), else every refit would mint new series.
"""

from rollcast.telemetry.metric import Metric

FORECAST_ASYMPTOTE = Metric(
    "rollcast_forecast_asymptote",
    "A, by quantile; absent if no law describes the curve",
    ("quantile",),
)
FORECAST_PASS_RATE = Metric(
    "rollcast_forecast_pass_rate",
    "Predicted pass rate by compute and quantile",
    ("compute", "quantile"),
)
FORECAST_HEADROOM = Metric(
    "rollcast_forecast_headroom",
    "A minus the level now, by quantile; absent without a law",
    ("quantile",),
)
FORECAST_END = Metric(
    "rollcast_forecast_end_pass_rate",
    "Predicted reading at the end of the budget, by quantile",
    ("quantile",),
)
FORECAST_END_DEVICE_HOURS = Metric(
    "rollcast_forecast_end_device_hours", "Compute at which the budget ends"
)
FORECAST_DESCRIBED = Metric("rollcast_forecast_described", "1 if a law describes the curve, else 0")
FORECAST_VERDICT = Metric("rollcast_forecast_verdict", "1 for the verdict in force", ("verdict",))
ADVICE = Metric("rollcast_advice", "1 for the advice in force (stop|continue|wait)", ("advice",))
ADVICE_EVALUATIONS = Metric(
    "rollcast_advice_evaluations", "Evaluations to wait for before deciding; 0 = decide now"
)
ADVICE_CHANCE = Metric(
    "rollcast_advice_chance",
    "Probability that the rest of the budget gains the required pass rate; absent if unknown",
)
ADVICE_GAIN = Metric(
    "rollcast_advice_gain",
    "Pass rate that the next tenth or all of the rest gains",
    ("stretch", "quantile"),
)
ADVICE_DEVICE_HOURS = Metric(
    "rollcast_advice_device_hours", "Compute of the next tenth or of all of the rest", ("stretch",)
)
FORECAST_EARLIER = Metric(
    "rollcast_forecast_earlier_pass_rate",
    "Forecast made for the newest reading when half of its compute was spent, by quantile",
    ("quantile",),
)
FORECAST_MISSED = Metric(
    "rollcast_forecast_missed_readings",
    (
        "Newest readings in a row outside the 90 % interval forecast for them at half of their "
        "compute; at most 10"
    ),
)
FORECAST_POINTS = Metric("rollcast_forecast_points", "Evaluations in the fit")
# Served with future timestamps by the forecaster's query API only: Prometheus refuses samples that
# are minutes ahead.
TIMELINE_PASS_RATE = Metric(
    "rollcast_timeline_pass_rate",
    "Pass rate over time: what an evaluation then will read",
    ("quantile",),
)
TIMELINE_DEVICE_HOURS = Metric(
    "rollcast_timeline_device_hours", "Compute over time: measured, then at that rate"
)
FORECAST_LOST_POINTS = Metric(
    "rollcast_forecast_lost_points",
    "Evaluations left out because their step is not in the surviving history",
)
FORECAST_INCOMPLETE_POINTS = Metric(
    "rollcast_forecast_incomplete_points",
    "Evaluations left out because less than 90 % of their prompts were graded",
)
FORECAST_SOURCE_UP = Metric(
    "rollcast_forecast_source_up", "1 while the forecaster's source answers"
)
FORECAST_REFITS = Metric("rollcast_forecast_refits_total", "Refits since start")
FORECAST_SKIPPED = Metric(
    "rollcast_forecast_skipped_total", "Readings that were skipped, by reason", ("reason",)
)
