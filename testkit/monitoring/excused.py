"""Queries of the dashboards and alerts that may find nothing in a run that is well."""

from __future__ import annotations

from testkit.monitoring.grafana import FILES, load, panels

_RUN = 'namespace="$namespace",run="$run"'
_DCGM = (
    'max by (namespace, pod, gpu) (label_replace(label_replace(%s, "namespace", "$1", '
    '"exported_namespace", "(.+)"), '
    '"pod", "$1", "exported_pod", "(.+)")) * on (namespace) group_left () max by (namespace) '
    '(rollcast_trainer_step{run="$run"} >= bool 0)'
)
_EXCUSED = {
    'rollcast_trainer_wait_seconds_total{run="$run",for="weights"}': (
        "weights arrive in time, and no wait is counted"
    ),
    'rollcast_autoscaler_failures_total{run="$run"}': (
        "no Kubernetes is here whose calls could fail"
    ),
    (
        'sum by (call) (rollcast_autoscaler_failures_total{run="$run"})'
    ): "no Kubernetes is here whose calls could fail",
    (
        'sum by (direction) (rollcast_autoscaler_changes_total{run="$run"})'
    ): "whether it changes in a minute is chance",
    (
        'sum by (run) (rollcast_hand_overs_total{run="$run"})'
    ): "no generator here is slow enough to hand a task over",
    (
        'sum by (run) (rollcast_hand_backs_total{run="$run"})'
    ): "killed ones hand nothing back, drained ones perhaps",
    'rollcast_wrong_numbers_timestamp_seconds{run="$run"}': "no trainer here ends for its numbers",
    'rollcast_generator_parked{run="$run"}': "every generator here has the memory that it needs",
    (
        'max by (quantile) (rollcast_forecast_earlier_pass_rate{run="$run"})'
    ): "readings as noisy may look broken half-way",
    'rollcast_forecast_missed_readings{run="$run"}': (
        "nothing is forecast, and so missed, while a run looks broken"
    ),
    'max by (run) (rollcast_reference_kl{run="$run"})': "the recorded recipe has no KL penalty",
    _DCGM % "DCGM_FI_DEV_GPU_UTIL": "dcgm-exporter runs on GPU nodes",
    _DCGM % "DCGM_FI_DEV_FB_USED": "dcgm-exporter runs on GPU nodes",
    _DCGM % "DCGM_FI_DEV_POWER_USAGE": "dcgm-exporter runs on GPU nodes",
}
_NO_EPISODES = "no prompt of the watched run names an environment"
_OF_EPISODES = (
    "rollcast_episode",
    "rollcast_environment_metric",
    "rollcast_endpoint",
    'dataset=~"environment:',
)
_EXCUSED |= {
    f'rollcast_{name}{{run="$run"{label}}}': _NO_EPISODES
    for name, label in (
        ("episodes_total", ""),
        ("episodes_total", ',end="failed"'),
        ("episode_restarts_total", ""),
        ("episodes_waiting", ""),
        ("episodes_in_flight", ""),
    )
}
_SILENT_PANELS = {
    target["expr"]: _NO_EPISODES
    for panel in panels(load(FILES / "dashboards" / "episodes.json"))
    for target in panel["targets"]
    if any(words in target["expr"] for words in _OF_EPISODES)
}
NOT_IN_A_LOCAL_RUN = _SILENT_PANELS | {
    query.replace('run="$run"', _RUN): reason for query, reason in _EXCUSED.items()
}
"""Whole expressions that may have no data, and why: a cluster's, or an event that need not
happen."""
