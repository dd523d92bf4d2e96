"""Metrics of the autoscaler."""

from rollcast.telemetry.metric import Metric

GENERATORS_DESIRED = Metric("rollcast_generators_desired", "Generators wanted; absent until known")
AUTOSCALER_NEED = Metric(
    "rollcast_autoscaler_need_tokens_per_second",
    "Tokens to sample for a trainer that never waits for a batch",
)
AUTOSCALER_CAPABILITY = Metric(
    "rollcast_autoscaler_capability_tokens_per_second",
    "Tokens that one generator was seen to sample",
)
AUTOSCALER_MEASURED = Metric(
    "rollcast_autoscaler_measured", "1 while the run can be measured; 0 = the number is held"
)
AUTOSCALER_CHANGES = Metric(
    "rollcast_autoscaler_changes_total", "Changes of the number", ("direction",)
)
AUTOSCALER_FAILURES = Metric(
    "rollcast_autoscaler_failures_total", "Calls to Kubernetes that failed, by purpose", ("call",)
)
AUTOSCALER_SKIPPED = Metric(
    "rollcast_autoscaler_skipped_total",
    "Pages that could not be read, samples left out, by reason",
    ("reason",),
)
