"""Queries of the dashboards and alerts that may find nothing in a run that is well."""

from __future__ import annotations

_RUN = 'namespace="$namespace",run="$run"'
_DCGM = (
    'max by (namespace, pod, gpu) (label_replace(label_replace(%s, "namespace", "$1", "exported_namespace", "(.+)"), '
    '"pod", "$1", "exported_pod", "(.+)")) * on (namespace) group_left () max by (namespace) '
    '(rollcast_trainer_step{run="$run"} >= bool 0)'
)
_EXCUSED = {
    'rollcast_trainer_wait_seconds_total{run="$run",for="weights"}': "weights arrive in time, and no wait is counted",
    'rollcast_autoscaler_failures_total{run="$run"}': "no Kubernetes is here whose calls could fail",
    'sum by (call) (rollcast_autoscaler_failures_total{run="$run"})': "no Kubernetes is here whose calls could fail",
    'sum by (direction) (rollcast_autoscaler_changes_total{run="$run"})': "whether it changes in a minute is chance",
    'sum by (run) (rollcast_hand_overs_total{run="$run"})': "no generator here is slow enough to hand a task over",
    'sum by (run) (rollcast_hand_backs_total{run="$run"})': "killed ones hand nothing back, drained ones perhaps",
    'rollcast_generator_parked{run="$run"}': "every generator here has the memory that it needs",
    _DCGM % "DCGM_FI_DEV_GPU_UTIL": "dcgm-exporter runs on GPU nodes",
    _DCGM % "DCGM_FI_DEV_FB_USED": "dcgm-exporter runs on GPU nodes",
    _DCGM % "DCGM_FI_DEV_POWER_USAGE": "dcgm-exporter runs on GPU nodes",
}
NOT_IN_A_LOCAL_RUN = {asked.replace('run="$run"', _RUN): why for asked, why in _EXCUSED.items()}
"""Whole expressions that may have no data, and why: a cluster's, or an event that need not happen."""
