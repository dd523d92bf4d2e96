"""Alerts and Grafana dashboards as code, built from the metrics of `rollcast.telemetry`.

`python -m monitoring` writes helm/rollcast/files/{rules.yaml,dashboards/*.json} and
docs/reference/dashboards.md.
"""
