"""Fleet: the generators, the decisions to scale them, and the GPUs if DCGM exports them."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring import variables
from monitoring.panels import SECONDS, SHARE, Query, assemble, lines, states
from monitoring.promql import mean, series
from monitoring.variables import RUN
from rollcast.telemetry import autoscaler_metrics, generator_metrics, trainer_metrics, wire_metrics
from rollcast.telemetry.metric import Metric

RATE = "$__rate_interval"
PLACE = "pod, instance"
"""A generator in a cluster, and one on a machine."""
_EACH = "{{pod}} {{instance}}"
NO_GPU = "no GPU from dcgm-exporter"
NO_AUTOSCALER = "no autoscaler: it is a cluster's"
NOTHING = "nothing of the kind"
_GPU_PANELS: tuple[tuple[str, str, str, str, tuple[float, float | None]], ...] = (
    (
        "GPU use",
        "Share of the time in which a kernel ran (dcgm-exporter), all GPUs in the run's namespace.",
        "DCGM_FI_DEV_GPU_UTIL",
        "percent",
        (0, 100),
    ),
    ("GPU memory", "Used on each GPU.", "DCGM_FI_DEV_FB_USED", "decmbytes", (0, None)),
    ("Power", "Drawn by each GPU.", "DCGM_FI_DEV_POWER_USAGE", "watt", (0, None)),
)


def _each(expression: str) -> list[Query]:
    return [Query(f"sum by ({PLACE}) ({expression})", _EACH)]


def _gauge(metric: Metric, legend: str, *matchers: str) -> Query:
    return Query(f"max by (run) ({series(metric, RUN, *matchers)})", legend)


def _events(metric: Metric, by: str) -> Query:
    return Query(f"sum by ({by}) ({series(metric, RUN)})", f"{{{{{by}}}}}")


def _gpu(metric: str) -> list[Query]:
    """A metric of dcgm-exporter for the GPUs in the namespace of the run's trainer.

    The exporter's own pod comes first in Prometheus unless it honours labels: exported_* then name
    the pod at work.
    """
    named = metric
    for label in ("namespace", "pod"):
        named = f'label_replace({named}, "{label}", "$1", "exported_{label}", "(.+)")'
    here = f"max by (namespace) ({series(trainer_metrics.TRAINER_STEP, RUN)} >= bool 0)"
    return [
        Query(
            f"max by (namespace, pod, gpu) ({named}) * on (namespace) group_left () {here}",
            "{{pod}} GPU {{gpu}}",
        )
    ]


def fleet_dashboard() -> Dashboard:
    idle = series(generator_metrics.GENERATOR_IDLE, RUN)
    batch_wait = series(trainer_metrics.TRAINER_WAIT, RUN, 'for="batch"')
    step = f"max by (run) ({series(trainer_metrics.TRAINER_STEP, RUN)})"
    held = f"max by (run, generator) ({series(generator_metrics.POLICY_STEP, RUN)})"
    generators = [
        lines(
            "Generators",
            "Joined in the weight group, ready to be used, and wanted by the autoscaler.",
            [
                Query(f"max by (state) ({series(trainer_metrics.GENERATORS, RUN)})", "{{state}}"),
                _gauge(autoscaler_metrics.GENERATORS_DESIRED, "wanted"),
            ],
            width=8,
            bounds=(0, None),
            overrides={
                "wanted": {
                    "custom.lineStyle": {"fill": "dash"},
                    "custom.lineInterpolation": "stepAfter",
                }
            },
        ),
        lines(
            "Idle",
            "Share of the time in which a generator had no rollout at all.",
            _each(f"rate({idle}[{RATE}])"),
            width=8,
            unit=SHARE,
            bounds=(0, 1),
        ),
        lines(
            "Rollouts in the engine",
            "By generator.",
            _each(series(generator_metrics.RUNNING_ROLLOUTS, RUN)),
            width=8,
        ),
        lines(
            "Tokens sampled a second",
            "By generator.",
            _each(f"rate({series(generator_metrics.SAMPLED_TOKENS, RUN)}[{RATE}])"),
            width=8,
            bounds=(0, None),
        ),
        lines(
            "Tokens in flight",
            (
                "What the requests in the engine have sampled so far: what a generator that goes "
                "would hand back."
            ),
            _each(series(generator_metrics.INFLIGHT_TOKENS, RUN)),
            width=8,
        ),
        lines(
            "Steps behind the trainer",
            "How much older than the trainer's are the weights that a generator holds.",
            [Query(f"clamp_min({step} - on (run) group_right () {held}, 0)", "{{generator}}")],
            width=8,
            bounds=(0, None),
        ),
        lines(
            "Pause for weights",
            "Mean pause of generation to apply a version, by generator.",
            [Query(mean(generator_metrics.WEIGHT_PAUSE_SECONDS, RUN, RATE, by=PLACE), _EACH)],
            width=12,
            unit=SECONDS,
            bounds=(0, None),
        ),
        lines(
            "Left and handed back",
            "Since the start: generators removed by the trainer, by reason; tasks handed back "
            "unfinished; of these "
            "handed to a faster generator.",
            [
                Query(
                    f"sum by (reason) ({series(wire_metrics.GENERATORS_FENCED, RUN)})",
                    "removed: {{reason}}",
                ),
                Query(f"sum by (run) ({series(generator_metrics.HAND_BACKS, RUN)})", "handed back"),
                Query(f"sum by (run) ({series(generator_metrics.HAND_OVERS, RUN)})", "handed over"),
            ],
            width=12,
            bounds=(0, None),
            empty=NOTHING,
        ),
    ]
    scaling = [
        lines(
            "Need and capability",
            "Tokens a second that the trainer needs so as never to wait, what all generators "
            "sample, and what one was "
            "seen to sample.",
            [
                _gauge(autoscaler_metrics.AUTOSCALER_NEED, "needed"),
                Query(
                    f"sum by (run) (rate({series(generator_metrics.SAMPLED_TOKENS, RUN)}[{RATE}]))",
                    "sampled",
                ),
                _gauge(autoscaler_metrics.AUTOSCALER_CAPABILITY, "one generator can"),
            ],
            width=8,
            bounds=(0, None),
            empty=NO_AUTOSCALER,
        ),
        lines(
            "Waiting and idling",
            (
                "What scaling weighs: the trainer's waiting for a batch against the generators' "
                "idling."
            ),
            [
                Query(
                    f"sum by (run) (rate({batch_wait}[{RATE}]))",
                    "trainer waits for a batch",
                ),
                Query(f"avg by (run) (rate({idle}[{RATE}]))", "generators idle"),
            ],
            width=8,
            unit=SHARE,
            bounds=(0, 1),
        ),
        states(
            "Measured",
            "Whether the autoscaler can measure the run; while it cannot, the number is held.",
            [_gauge(autoscaler_metrics.AUTOSCALER_MEASURED, "measured")],
            width=8,
            empty=NO_AUTOSCALER,
        ),
        lines(
            "Decisions",
            "Changes of the number since the autoscaler's start, by direction.",
            [_events(autoscaler_metrics.AUTOSCALER_CHANGES, "direction")],
            width=12,
            bounds=(0, None),
            empty=f"no change, or {NO_AUTOSCALER}",
        ),
        lines(
            "What it could not do or read",
            "Calls to Kubernetes that failed, and pages and samples left out, by reason.",
            [
                _events(autoscaler_metrics.AUTOSCALER_FAILURES, "call"),
                _events(autoscaler_metrics.AUTOSCALER_SKIPPED, "reason"),
            ],
            width=12,
            bounds=(0, None),
            empty=f"{NOTHING}, or {NO_AUTOSCALER}",
        ),
    ]
    gpus = [
        lines(title, description, _gpu(metric), width=8, unit=unit, bounds=bounds, empty=NO_GPU)
        for title, description, metric, unit, bounds in _GPU_PANELS
    ]
    return assemble(
        "fleet",
        "Fleet",
        "Generators, scaling decisions and GPUs of one run.",
        [("Generators", generators), ("Scaling", scaling), ("GPUs", gpus)],
        [variables.data_source(), variables.namespace(), variables.run()],
        time=("now-3h", "now"),
    )
