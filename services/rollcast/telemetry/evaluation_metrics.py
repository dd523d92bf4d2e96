"""Metrics of the trainer's evaluations. The last 16 evaluations stay exposed, each under its own
labels, so that nothing must be guessed together.
"""

from rollcast.telemetry.metric import Metric

_EVAL = ("dataset", "incarnation", "step")
PART_PREFIX = "part:"
"""Label `dataset` of one part of a mixture: this and its name. A whole mixture and a single data
set have no prefix."""
DOWNSTREAM_PREFIX = "downstream:"
"""Label `dataset` of a downstream set: this and its name."""
ENVIRONMENT_PREFIX = "environment:"
"""Label `dataset` of one environment, if the held-out prompts have several: this and its name."""

EVAL_PASS_RATE = Metric("rollcast_eval_pass_rate", "mean@G on held-out prompts", _EVAL)
EVAL_STANDARD_ERROR = Metric(
    "rollcast_eval_standard_error",
    "Standard error of the pass rate on these prompts: of the sampling",
    _EVAL,
)
EVAL_STANDARD_ERROR_NEW_PROMPTS = Metric(
    "rollcast_eval_standard_error_new_prompts",
    "Standard error of the pass rate on other prompts of the kind",
    _EVAL,
)
EVAL_ENVIRONMENT_REWARD = Metric(
    "rollcast_eval_environment_reward",
    "Mean reward on the environment's own scale, if that is not 0 to 1",
    _EVAL,
)
EVAL_COMPUTE = Metric(
    "rollcast_eval_compute_device_hours", "compute_state when the evaluation was asked for", _EVAL
)
EVAL_TRAINED_TOKENS = Metric(
    "rollcast_eval_trained_tokens", "Tokens trained on when the evaluation was asked for", _EVAL
)
EVAL_LOST = Metric(
    "rollcast_eval_lost_total", "Evaluations that ended without a single verdict", ("dataset",)
)
EVAL_PROMPTS = Metric("rollcast_eval_prompts", "Prompts with a verdict", _EVAL)
EVAL_ASKED_PROMPTS = Metric(
    "rollcast_eval_asked_prompts", "Prompts that the evaluation asked", _EVAL
)
EVAL_PROMPTS_LOST = Metric(
    "rollcast_eval_prompts_lost_total",
    "Prompts of evaluations without a verdict, by reason (given_up|deadline|no_verdict)",
    ("dataset", "reason"),
)
EVAL_SAMPLES = Metric("rollcast_eval_samples", "Completions graded", _EVAL)
EVAL_START_UP = Metric(
    "rollcast_eval_start_up_device_hours",
    (
        "Part of the evaluation's compute that was spent before each incarnation's first training "
        "rollouts arrived"
    ),
    _EVAL,
)
EVAL_DEVICES = Metric(
    "rollcast_eval_devices",
    "Devices of generators and trainer when the evaluation was asked for",
    _EVAL,
)
EVAL_TRUNCATION = Metric(
    "rollcast_eval_truncation_ratio",
    "Rollouts cut off by the token budget in the newest batch then",
    _EVAL,
)


def is_own_curve(dataset: str) -> bool:
    """Whether evaluations with this label are the run's own curve, not of a part of its prompts or
    a downstream set.
    """
    return not dataset.startswith((PART_PREFIX, ENVIRONMENT_PREFIX, DOWNSTREAM_PREFIX))
