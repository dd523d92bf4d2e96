"""Metrics of the trainer."""

from rollcast.telemetry.metric import DURATION_BUCKETS_SECONDS, Metric

TRAINER_STEP = Metric("rollcast_trainer_step", "Optimizer steps in the surviving history")
INCARNATION = Metric("rollcast_incarnation", "Incarnation of the trainer")
INCARNATION_START = Metric(
    "rollcast_incarnation_start_step",
    "Step from which an incarnation continued: later steps of earlier ones are lost",
    ("incarnation",),
)
BUDGET_STEPS = Metric(
    "rollcast_budget_steps", "Optimizer steps at which the run ends; absent without a bound"
)
BUDGET_DEVICE_HOURS = Metric(
    "rollcast_budget_device_hours", "Compute at which the run ends; absent without a bound"
)
MAX_STALENESS = Metric("rollcast_max_staleness_steps", "k, the bound on staleness")
STALENESS = Metric(
    "rollcast_staleness_steps", "Staleness of trained tokens", buckets=tuple(range(17))
)
LONGEST_GROUP_RATIO = Metric(
    "rollcast_longest_group_ratio", "Steps the longest group lasted / (k - l); warn at 0.8"
)
TRAINER_WAIT = Metric(
    "rollcast_trainer_wait_seconds_total",
    "Time the trainer waited (batch|straggler|teacher|weights|redis)",
    ("for",),
)
STEP_SECONDS = Metric(
    "rollcast_step_seconds",
    "Wall time of an optimizer step, waits excluded",
    buckets=DURATION_BUCKETS_SECONDS,
)
UPDATES_SKIPPED = Metric(
    "rollcast_updates_skipped_total", "Batches without an update: the gradient was not finite"
)
GRADIENT_SPIKES = Metric(
    "rollcast_gradient_spikes_total",
    "Updates whose gradient norm was more than 10 times the median of the 64 before",
)
WRONG_NUMBERS = Metric(
    "rollcast_wrong_numbers_timestamp_seconds",
    "Unix time at which a trainer of this run last ended because of wrong numbers; absent if none",
)
CLAMPED_RATIOS = Metric(
    "rollcast_clamped_ratios_total",
    "Trained tokens whose probability ratio overflowed and was clamped",
)
RATIOS_CUT = Metric(
    "rollcast_ratios_cut_share",
    (
        "Loss tokens whose gradient the loss's clip removed, or whose ratio was truncated, by side "
        "(low|high)"
    ),
    ("side",),
)
RATIOS_MASKED = Metric(
    "rollcast_ratios_masked_share", "Loss tokens that recipe.corrections.mask left out"
)
EFFECTIVE_SAMPLE_SHARE = Metric(
    "rollcast_effective_sample_share",
    (
        "Share of the batch's loss tokens that count after their ratios of trainer to generator: "
        "their effective sample size"
    ),
)
GENERATOR_KL = Metric(
    "rollcast_generator_kl", "KL(generators || trainer) over a batch's loss tokens (nats per token)"
)
GROUPS = Metric(
    "rollcast_groups_total",
    (
        "Rollout groups settled, by outcome "
        "(used|filtered|redone|dead|refused|stale|duplicate|lost_version|defective)"
    ),
    ("outcome",),
)
GROUP_SIGNALS = Metric(
    "rollcast_group_signals_total",
    (
        "Finished training groups, by their use for training "
        "(usable|truncated|wrong|right|equal|no_verdict|filtered)"
    ),
    ("signal",),
)
GROUPS_BY_DECILE = Metric(
    "rollcast_groups_by_length_total",
    "Groups by outcome and decile of the prompt's length",
    ("outcome", "decile"),
)
GROUPS_BY_PASS_RATE = Metric(
    "rollcast_groups_by_pass_rate_total",
    "Groups by outcome and quarter of the prompt's past pass rate",
    ("outcome", "quarter"),
)
GROUPS_DISPATCHED = Metric("rollcast_groups_dispatched_total", "Tasks dispatched, first time each")
GROUPS_OUTSTANDING = Metric("rollcast_groups_outstanding", "Dispatched and not yet settled groups")
UNIQUE_PROMPTS = Metric("rollcast_unique_prompts", "Distinct prompts trained on")
PROMPT_USES = Metric("rollcast_prompt_uses_mean", "Mean uses of a prompt that was trained on")
PROMPTS_RETIRED = Metric(
    "rollcast_prompts_retired", "Prompts removed for good by no-positive-resampling"
)
PROMPTS_SKIPPED = Metric(
    "rollcast_prompts_skipped", "Prompts of the data set that were skipped, by reason", ("reason",)
)
LOGPROB_GAP = Metric(
    "rollcast_logprob_gap",
    (
        "Mean |trainer - generator log-prob| over the batch's tokens at the behaviour version's "
        "staleness"
    ),
    ("statistic",),
)
TRUNCATION_RATIO = Metric(
    "rollcast_truncation_ratio", "Rollouts cut by the budget / rollouts of the batch"
)
INTERRUPTED_RATIO = Metric(
    "rollcast_interrupted_ratio", "Rollouts whose thinking was cut / rollouts of the batch"
)
REWARD_MEAN = Metric("rollcast_reward_mean", "Mean reward of the batch before filtering")
TRUNCATED_MATCHES = Metric(
    "rollcast_truncated_matches_total",
    "Completions that the verifier found right although they were truncated, by purpose "
    "(train|eval); they count as wrong in pass rates",
    ("purpose",),
)
LOSS = Metric("rollcast_loss", "Loss of the last update")
GRAD_NORM = Metric("rollcast_grad_norm", "Gradient norm before clipping")
ENTROPY = Metric("rollcast_entropy", "Mean entropy of the policy at the batch's loss tokens (nats)")
REFERENCE_KL = Metric(
    "rollcast_reference_kl",
    "KL to the reference policy (nats per token, by kl.estimator); absent without a KL penalty",
)
TEACHER_KL = Metric(
    "rollcast_teacher_kl",
    (
        "Mean of log pi_gen - log pi_teacher over trained tokens (nats): reverse KL to the "
        "teacher; absent without one"
    ),
)
TEACHER_ROLLOUTS = Metric(
    "rollcast_teacher_rollouts_total",
    "Rollouts that the teacher's endpoint was asked about, by outcome "
    "(answered|unreachable|refused|unreadable|timeout); only answered ones are trained on",
    ("outcome",),
)
TEACHER_GROUPS = Metric(
    "rollcast_teacher_groups", "Groups that wait for the teacher's endpoint; absent without one"
)
TEACHER_TOKENS = Metric(
    "rollcast_teacher_tokens_total", "Tokens, prompts included, that the teacher's endpoint scored"
)
ATTENTION_KERNEL = Metric(
    "rollcast_attention_kernel",
    "1 for the kernel that computes the trainer's attention",
    ("kernel",),
)
LEARNING_RATE = Metric("rollcast_learning_rate", "Learning rate of the last update")
COMPLETION_TOKENS_MEAN = Metric(
    "rollcast_completion_tokens_mean", "Mean completion length of the batch"
)
TOKENS = Metric("rollcast_tokens_total", "Tokens generated or trained", ("role",))
CONSUMED_TOKENS = Metric(
    "rollcast_consumed_tokens_total",
    "Tokens of groups that were used or filtered, and of evaluations",
)
COMPUTE_STATE = Metric(
    "rollcast_compute_state_device_hours",
    "Compute of the surviving history: the C of the curve",
    ("role",),
)
COMPUTE_SPENT = Metric(
    "rollcast_compute_spent_device_hours_total", "Compute ever spent; never falls", ("role",)
)
COMPUTE_EVAL_SHARE = Metric(
    "rollcast_compute_eval_share", "Share of generated tokens that evaluation took"
)
GENERATORS = Metric("rollcast_generators", "Generators by state (joined|ready)", ("state",))
CHECKPOINT_SECONDS = Metric(
    "rollcast_checkpoint_seconds", "Time to write a checkpoint", buckets=DURATION_BUCKETS_SECONDS
)
CHECKPOINT_STEP = Metric("rollcast_checkpoint_step", "Step of the newest checkpoint")
RECORDED_STEPS = Metric(
    "rollcast_recorded_steps_total",
    "Steps that the flight recorder wrote, by reason (every_steps, or a condition of record.on)",
    ("reason",),
)
RECORDER_DROPPED = Metric(
    "rollcast_recorder_dropped_total",
    "Steps and weights that the flight recorder did not keep, by reason "
    "(max_bytes|slow_disk|disk|error)",
    ("reason",),
)
RECORDER_BYTES = Metric(
    "rollcast_recorder_bytes", "Bytes of recorded steps and weights in the run's folder"
)
RECORDER_WAIT = Metric(
    "rollcast_recorder_wait_seconds_total", "Time that steps waited for the flight recorder"
)
