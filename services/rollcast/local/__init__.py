"""One machine: the same services as processes, without a cluster."""
