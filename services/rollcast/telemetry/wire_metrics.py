"""Metrics of the wires: the queue of groups on Redis, and the weights."""

from rollcast.telemetry.metric import DURATION_BUCKETS_SECONDS, Metric

QUEUE_GROUPS = Metric("rollcast_queue_groups", "Finished groups on the queue")
QUEUE_BYTES = Metric("rollcast_queue_bytes", "Bytes of finished groups on the queue")
QUEUE_MAX_BYTES = Metric("rollcast_queue_max_bytes", "Bytes above which no new task is dispatched")
UNREADABLE = Metric(
    "rollcast_unreadable_total", "Entries and records on Redis that no program could use"
)
UNKNOWN_FIELDS = Metric(
    "rollcast_unknown_fields_total", "Protobuf fields of a newer program that were skipped"
)
REDIS_AWAY = Metric("rollcast_redis_away_seconds_total", "Time without Redis")
WEIGHT_SYNC_SECONDS = Metric(
    "rollcast_weight_sync_seconds",
    "From staging a version to every member's acknowledgement",
    buckets=DURATION_BUCKETS_SECONDS,
)
WEIGHT_EPOCH = Metric("rollcast_weight_epoch", "Epoch of the weight group")
WEIGHT_FAILURES = Metric(
    "rollcast_weight_failures_total",
    "Publishes that failed and were repeated, by reason",
    ("reason",),
)
WEIGHT_STORED_BYTES = Metric(
    "rollcast_weight_stored_bytes_total",
    "Bytes of the objects written to the store of weights, by kind (whole, changes)",
    ("kind",),
)
WEIGHT_STORE_BYTES = Metric(
    "rollcast_weight_store_bytes", "Bytes of the objects that the store of weights holds"
)
WEIGHT_STORE_SECONDS = Metric(
    "rollcast_weight_store_seconds",
    "From staging a version to its last object in the store",
    buckets=DURATION_BUCKETS_SECONDS,
)
GENERATORS_FENCED = Metric(
    "rollcast_generators_fenced_total", "Generators removed, by reason", ("reason",)
)
