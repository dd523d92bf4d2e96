"""Metrics of a grader.

Its gradings are the generators' as well, so they have names of their own.
"""

from rollcast.telemetry.metric import DURATION_BUCKETS_SECONDS, Metric

GRADER_GRADINGS = Metric(
    "rollcast_grader_gradings_total", "Completions this grader graded, by status", ("status",)
)
GRADER_SECONDS = Metric(
    "rollcast_grader_grading_seconds",
    "Time to grade one completion once its turn came",
    buckets=DURATION_BUCKETS_SECONDS,
)
GRADER_RUNNING = Metric("rollcast_grader_running", "Gradings under way in this grader")
GRADER_WAITING = Metric(
    "rollcast_grader_waiting", "Gradings that wait in this grader for their turn"
)
GRADER_REFUSED = Metric(
    "rollcast_grader_refused_total",
    "Requests this grader sent away, by reason (full|stopping|abandoned|importing|request)",
    ("reason",),
)
