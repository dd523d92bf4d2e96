"""Alerts and Grafana dashboards as code, built from the metric names of `rollcast.telemetry.names`.

`python -m monitoring` writes helm/rollcast/files/{rules.yaml,dashboards/*.json} and docs/reference/dashboards.md.
"""
