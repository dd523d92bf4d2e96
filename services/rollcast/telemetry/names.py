"""Every metric of Rollcast, named once: name with base unit, help, type, labels.

The forecaster, the dashboards and the alerts read the names from here; renaming one is one diff.
Every series also carries the label `run`.
"""

from rollcast.telemetry.metric import Metric as Metric

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_EVAL = ("dataset", "incarnation", "step")
_ENVIRONMENT = ("environment",)
_COUNTS_PER_EPISODE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
PART_PREFIX = "part:"
"""Label `dataset` of one part of a mixture: this and its name. A whole mixture and a single data set have no prefix."""
DOWNSTREAM_PREFIX = "downstream:"
"""Label `dataset` of a downstream set: this and its name."""
ENVIRONMENT_PREFIX = "environment:"
"""Label `dataset` of one environment, if the held-out prompts have several: this and its name."""

# Trainer
TRAINER_STEP = Metric("rollcast_trainer_step", "Optimizer steps in the surviving history")
INCARNATION = Metric("rollcast_incarnation", "Incarnation of the trainer")
INCARNATION_START = Metric(
    "rollcast_incarnation_start_step",
    "Step from which an incarnation continued: later steps of earlier ones are lost",
    ("incarnation",),
)
BUDGET_STEPS = Metric("rollcast_budget_steps", "Optimizer steps at which the run ends; absent without a bound")
BUDGET_DEVICE_HOURS = Metric("rollcast_budget_device_hours", "Compute at which the run ends; absent without a bound")
MAX_STALENESS = Metric("rollcast_max_staleness_steps", "k, the bound on staleness")
STALENESS = Metric("rollcast_staleness_steps", "Staleness of trained tokens", buckets=tuple(range(17)))
LONGEST_GROUP_RATIO = Metric("rollcast_longest_group_ratio", "Steps the longest group lasted / (k - l); warn at 0.8")
TRAINER_WAIT = Metric(
    "rollcast_trainer_wait_seconds_total", "Time the trainer waited (batch|straggler|teacher|weights|redis)", ("for",)
)
STEP_SECONDS = Metric("rollcast_step_seconds", "Wall time of an optimizer step, waits excluded", buckets=_SECONDS)
UPDATES_SKIPPED = Metric(
    "rollcast_updates_skipped_total", "Batches that made no update because the gradient was not finite"
)
CLAMPED_RATIOS = Metric(
    "rollcast_clamped_ratios_total", "Trained tokens whose probability ratio overflowed and was clamped"
)
RATIOS_CUT = Metric(
    "rollcast_ratios_cut_share",
    "Loss tokens whose gradient the loss's clip removed, or whose ratio was truncated, by side (low|high)",
    ("side",),
)
RATIOS_MASKED = Metric("rollcast_ratios_masked_share", "Loss tokens that recipe.corrections.mask left out")
EFFECTIVE_SAMPLE_SHARE = Metric(
    "rollcast_effective_sample_share",
    "Share of the batch's loss tokens that count after their ratios of trainer to generator: their effective sample size",
)
GENERATOR_KL = Metric(
    "rollcast_generator_kl", "KL(generators || trainer) over the batch's loss tokens (nats per token)"
)
GROUPS = Metric(
    "rollcast_groups_total",
    "Rollout groups settled, by outcome (used|filtered|redone|dead|refused|stale|duplicate|lost_version|defective)",
    ("outcome",),
)
GROUP_SIGNALS = Metric(
    "rollcast_group_signals_total",
    "Finished training groups, by their use for training (usable|truncated|wrong|right|equal|no_verdict|filtered)",
    ("signal",),
)
GROUPS_BY_DECILE = Metric(
    "rollcast_groups_by_length_total", "Groups by outcome and decile of the prompt's length", ("outcome", "decile")
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
PROMPTS_RETIRED = Metric("rollcast_prompts_retired", "Prompts removed for good by no-positive-resampling")
PROMPTS_SKIPPED = Metric(
    "rollcast_prompts_skipped", "Prompts of the data set that were skipped, by reason", ("reason",)
)
LOGPROB_GAP = Metric(
    "rollcast_logprob_gap",
    "Mean |trainer - generator log-prob| over the batch's tokens at the behaviour version's staleness",
    ("statistic",),
)
TRUNCATION_RATIO = Metric("rollcast_truncation_ratio", "Rollouts cut by the budget / rollouts of the batch")
INTERRUPTED_RATIO = Metric("rollcast_interrupted_ratio", "Rollouts whose thinking was cut / rollouts of the batch")
REWARD_MEAN = Metric("rollcast_reward_mean", "Mean reward of the batch before filtering")
TRUNCATED_MATCHES = Metric(
    "rollcast_truncated_matches_total",
    "Completions that the verifier found right although they were truncated, by purpose (train|eval); they count as "
    "wrong in pass rates",
    ("purpose",),
)
LOSS = Metric("rollcast_loss", "Loss of the last update")
GRAD_NORM = Metric("rollcast_grad_norm", "Gradient norm before clipping")
ENTROPY = Metric("rollcast_entropy", "Mean entropy of the policy at the batch's loss tokens (nats)")
REFERENCE_KL = Metric(
    "rollcast_reference_kl", "KL to the reference policy (nats per token, by kl.estimator); absent without a KL penalty"
)
TEACHER_KL = Metric(
    "rollcast_teacher_kl",
    "Mean of log pi_gen - log pi_teacher over trained tokens (nats): reverse KL to the teacher; absent without one",
)
TEACHER_ROLLOUTS = Metric(
    "rollcast_teacher_rollouts_total",
    "Rollouts that the teacher's endpoint was asked about, by outcome "
    "(answered|unreachable|refused|unreadable|timeout); only answered ones are trained on",
    ("outcome",),
)
TEACHER_GROUPS = Metric("rollcast_teacher_groups", "Groups that wait for the teacher's endpoint; absent without one")
TEACHER_TOKENS = Metric("rollcast_teacher_tokens_total", "Tokens, prompts included, that the teacher's endpoint scored")
ATTENTION_KERNEL = Metric(
    "rollcast_attention_kernel", "1 for the kernel that computes the trainer's attention", ("kernel",)
)
LEARNING_RATE = Metric("rollcast_learning_rate", "Learning rate of the last update")
COMPLETION_TOKENS_MEAN = Metric("rollcast_completion_tokens_mean", "Mean completion length of the batch")
TOKENS = Metric("rollcast_tokens_total", "Tokens generated or trained", ("role",))
CONSUMED_TOKENS = Metric(
    "rollcast_consumed_tokens_total", "Tokens of groups that were used or filtered, and of evaluations"
)
COMPUTE_STATE = Metric(
    "rollcast_compute_state_device_hours", "Compute of the surviving history: the C of the curve", ("role",)
)
COMPUTE_SPENT = Metric("rollcast_compute_spent_device_hours_total", "Compute ever spent; never falls", ("role",))
COMPUTE_EVAL_SHARE = Metric("rollcast_compute_eval_share", "Share of generated tokens that evaluation took")
GENERATORS = Metric("rollcast_generators", "Generators by state (joined|ready)", ("state",))
CHECKPOINT_SECONDS = Metric("rollcast_checkpoint_seconds", "Time to write a checkpoint", buckets=_SECONDS)
CHECKPOINT_STEP = Metric("rollcast_checkpoint_step", "Step of the newest checkpoint")

# Evaluation: the last 16 stay exposed, each under its own labels, so that nothing must be guessed together.
EVAL_PASS_RATE = Metric("rollcast_eval_pass_rate", "mean@G on held-out prompts", _EVAL)
EVAL_STANDARD_ERROR = Metric(
    "rollcast_eval_standard_error", "Standard error of the pass rate on these prompts: of the sampling", _EVAL
)
EVAL_STANDARD_ERROR_NEW_PROMPTS = Metric(
    "rollcast_eval_standard_error_new_prompts", "Standard error of the pass rate on other prompts of the kind", _EVAL
)
EVAL_COMPUTE = Metric("rollcast_eval_compute_device_hours", "compute_state when the evaluation was asked for", _EVAL)
EVAL_TRAINED_TOKENS = Metric(
    "rollcast_eval_trained_tokens", "Tokens trained on when the evaluation was asked for", _EVAL
)
EVAL_LOST = Metric("rollcast_eval_lost_total", "Evaluations that ended without a single verdict", ("dataset",))
EVAL_PROMPTS = Metric("rollcast_eval_prompts", "Prompts with a verdict", _EVAL)
EVAL_ASKED_PROMPTS = Metric("rollcast_eval_asked_prompts", "Prompts that the evaluation asked", _EVAL)
EVAL_PROMPTS_LOST = Metric(
    "rollcast_eval_prompts_lost_total",
    "Prompts of evaluations without a verdict, by reason (given_up|deadline|no_verdict)",
    ("dataset", "reason"),
)
EVAL_SAMPLES = Metric("rollcast_eval_samples", "Completions graded", _EVAL)
EVAL_START_UP = Metric(
    "rollcast_eval_start_up_device_hours",
    "Part of the evaluation's compute that was spent before each incarnation's first training rollouts arrived",
    _EVAL,
)
EVAL_DEVICES = Metric(
    "rollcast_eval_devices", "Devices of generators and trainer when the evaluation was asked for", _EVAL
)
EVAL_TRUNCATION = Metric(
    "rollcast_eval_truncation_ratio", "Rollouts cut off by the token budget in the newest batch then", _EVAL
)

# Episodes: the trainer counts those that came back usable, training and evaluation; the generators their own state.
EPISODES = Metric("rollcast_episodes_total", "Episodes that came back, by their end", ("environment", "end"))
EPISODE_TURNS = Metric(
    "rollcast_episode_turns", "Turns of the model in an episode", _ENVIRONMENT, buckets=_COUNTS_PER_EPISODE
)
EPISODE_TOOL_CALLS = Metric(
    "rollcast_episode_tool_calls", "Tool calls in an episode", _ENVIRONMENT, buckets=_COUNTS_PER_EPISODE
)
EPISODE_MALFORMED_CALLS = Metric(
    "rollcast_episode_malformed_calls_total", "Tool calls that were unreadable or wrong", _ENVIRONMENT
)
EPISODE_SECONDS = Metric(
    "rollcast_episode_seconds_total", "Time of episodes, by part (environment|sampling)", ("environment", "part")
)
EPISODE_RESTARTS = Metric(
    "rollcast_episode_restarts_total", "Episodes that began again because their environment failed", _ENVIRONMENT
)
EPISODE_FAILURES = Metric(
    "rollcast_episode_failures_total",
    "Failures of environments, by stage (start|reset|call|reward); slot: the engine had none free in time",
    ("environment", "stage"),
)
EPISODE_BRANCHES = Metric(
    "rollcast_episode_branches_total", "Splits: a turn could not extend the tokens before it", _ENVIRONMENT
)
EPISODES_IN_FLIGHT = Metric("rollcast_episodes_in_flight", "Episodes under way in this generator", _ENVIRONMENT)
EPISODES_WAITING = Metric(
    "rollcast_episodes_waiting", "Of the episodes in flight: those that wait for a free environment", _ENVIRONMENT
)
EPISODE_CALLS_OVERDUE = Metric(
    "rollcast_episode_calls_overdue_total", "Tool calls that exceeded their deadline", _ENVIRONMENT
)
EPISODE_ANSWERS_CUT = Metric(
    "rollcast_episode_answers_cut_total", "Answers of environments that were shortened to their limit", _ENVIRONMENT
)
EPISODE_TOKENS_DISCARDED = Metric(
    "rollcast_episode_tokens_discarded_total", "Sampled tokens of episodes that began again", _ENVIRONMENT
)

ENDPOINT_SEQUENCES = Metric(
    "rollcast_endpoint_sequences_total",
    "Further sequences of harnesses, by reason (rewritten|new|forked|retried|format)",
    ("environment", "reason"),
)
ENDPOINT_UNREAD = Metric(
    "rollcast_endpoint_unread_turns_total", "Completions that no harness read, left out of training", _ENVIRONMENT
)
ENDPOINT_REPLACED = Metric(
    "rollcast_endpoint_replaced_settings_total", "Sampling settings of requests that the run's replaced", _ENVIRONMENT
)
ENDPOINT_REFUSED = Metric(
    "rollcast_endpoint_refused_requests_total", "Refused requests of harnesses, by code", ("environment", "code")
)
ENDPOINT_DISAGREEMENTS = Metric(
    "rollcast_endpoint_disagreements_total", "Episodes with another trace by verifiers, not trained", _ENVIRONMENT
)
ENDPOINT_SINGLE_TOKENS = Metric("rollcast_endpoint_single_tokens_total", "Sampled for calls without a session")

# Queue and weights
QUEUE_GROUPS = Metric("rollcast_queue_groups", "Finished groups on the queue")
QUEUE_BYTES = Metric("rollcast_queue_bytes", "Bytes of finished groups on the queue")
QUEUE_MAX_BYTES = Metric("rollcast_queue_max_bytes", "Bytes above which no new task is dispatched")
UNREADABLE = Metric("rollcast_unreadable_total", "Entries and records on Redis that no program could use")
UNKNOWN_FIELDS = Metric("rollcast_unknown_fields_total", "Protobuf fields of a newer program that were skipped")
REDIS_AWAY = Metric("rollcast_redis_away_seconds_total", "Time without Redis")
WEIGHT_SYNC_SECONDS = Metric(
    "rollcast_weight_sync_seconds", "From staging a version to every member's acknowledgement", buckets=_SECONDS
)
WEIGHT_EPOCH = Metric("rollcast_weight_epoch", "Epoch of the weight group")
WEIGHT_FAILURES = Metric(
    "rollcast_weight_failures_total", "Publishes that failed and were repeated, by reason", ("reason",)
)
GENERATORS_FENCED = Metric("rollcast_generators_fenced_total", "Generators removed, by reason", ("reason",))

# Generator
POLICY_STEP = Metric("rollcast_policy_step", "Step of the weights the generator holds", ("generator",))
WEIGHT_PAUSE_SECONDS = Metric("rollcast_weight_pause_seconds", "Pause of generation to apply weights", buckets=_SECONDS)
WEIGHT_LOAD_SECONDS = Metric(
    "rollcast_weight_load_seconds", "Of the pause: copying the parameters into the model", buckets=_SECONDS
)
WEIGHT_RECEIVE_SECONDS = Metric(
    "rollcast_weight_receive_seconds", "Background reception of a version", buckets=_SECONDS
)
GENERATOR_IDLE = Metric("rollcast_generator_idle_seconds_total", "Time in which the generator had no rollout")
RUNNING_ROLLOUTS = Metric("rollcast_running_rollouts", "Rollouts in the engine")
GENERATOR_SLOTS = Metric("rollcast_generator_slots", "Rollouts that this generator runs concurrently")
GENERATOR_PARKED = Metric(
    "rollcast_generator_parked",
    "1 if this generator has ended its engine because memory ran out, and only waits for its own end",
)
SAMPLED_TOKENS = Metric("rollcast_sampled_tokens_total", "Tokens sampled, counted as the engine steps")
INFLIGHT_TOKENS = Metric("rollcast_inflight_tokens", "Tokens that the requests in the engine have sampled so far")
PREEMPTIONS = Metric("rollcast_preemptions_total", "KV preemptions in the engine")
EPISODE_KV_TOKENS = Metric(
    "rollcast_episode_kv_tokens_total", "Tokens before later turns, by their KV (kept|rebuilt)", ("state",)
)
HAND_BACKS = Metric("rollcast_hand_backs_total", "Tasks handed back unfinished")
HAND_OVERS = Metric(
    "rollcast_hand_overs_total", "Tasks handed back because the trainer asked: a faster generator continues them"
)
REFUSED = Metric("rollcast_refused_total", "Answers refused because the task had another owner")
ABORTED = Metric("rollcast_aborted_rollouts_total", "Rollouts aborted because they held tokens of lost steps")
GRADINGS = Metric("rollcast_gradings_total", "Completions graded, by status", ("status",))
CONTAINED = Metric(
    "rollcast_gradings_contained_total",
    "Gradings in which the sandbox stopped something, by reason (time|memory|output|exit|crash|forbidden|garbled|"
    "reference), or only waited for a core (busy)",
    ("reason",),
)
VERIFIER_FAILURES = Metric(
    "rollcast_verifier_failures_total",
    "Completions left out because their verifier gave no verdict: it failed, or took too long",
    ("verifier",),
)
VERIFIER_REQUESTS = Metric(
    "rollcast_verifier_requests_total",
    "Requests to verifiers that are services, by outcome (answered|unreachable|refused|unreadable|paused|timeout)",
    ("verifier", "outcome"),
)
GRADING_TIMEOUTS = Metric(
    "rollcast_grading_timeouts_total",
    "Gradings stopped at a time limit, the program's or the grader's, by data set",
    ("dataset",),
)
GRADING_SECONDS = Metric("rollcast_grading_seconds", "Time to grade one completion", buckets=_SECONDS)
GRADER_FAILURES = Metric(
    "rollcast_grader_failures_total",
    "Calls of a generator to the grader that failed and were repeated, or given up, by gRPC's status",
    ("code",),
)

# Grader: its gradings are the generators' as well, so they have names of their own.
GRADER_GRADINGS = Metric("rollcast_grader_gradings_total", "Completions this grader graded, by status", ("status",))
GRADER_SECONDS = Metric(
    "rollcast_grader_grading_seconds", "Time to grade one completion once its turn came", buckets=_SECONDS
)
GRADER_RUNNING = Metric("rollcast_grader_running", "Gradings under way in this grader")
GRADER_WAITING = Metric("rollcast_grader_waiting", "Gradings that wait in this grader for their turn")
GRADER_REFUSED = Metric(
    "rollcast_grader_refused_total",
    "Requests this grader sent away, by reason (full|stopping|abandoned|importing|request)",
    ("reason",),
)

# Forecaster: the compute grid is fixed per run (40 values), else every refit would mint new series.
FORECAST_ASYMPTOTE = Metric("rollcast_forecast_asymptote", "A, by quantile; absent without a law", ("quantile",))
FORECAST_PASS_RATE = Metric(
    "rollcast_forecast_pass_rate", "Predicted pass rate by compute and quantile", ("compute", "quantile")
)
FORECAST_HEADROOM = Metric(
    "rollcast_forecast_headroom", "A - level now, by quantile; absent if no law describes the curve", ("quantile",)
)
FORECAST_END = Metric(
    "rollcast_forecast_end_pass_rate", "Predicted reading at the end of the budget, by quantile", ("quantile",)
)
FORECAST_END_DEVICE_HOURS = Metric("rollcast_forecast_end_device_hours", "Compute at which the budget ends")
FORECAST_DESCRIBED = Metric("rollcast_forecast_described", "1 if a law describes the curve, else 0")
FORECAST_VERDICT = Metric("rollcast_forecast_verdict", "1 for the verdict in force", ("verdict",))
ADVICE = Metric("rollcast_advice", "1 for the advice in force (stop|continue|wait)", ("advice",))
ADVICE_EVALUATIONS = Metric("rollcast_advice_evaluations", "Evaluations to wait for before deciding; 0 = decide now")
ADVICE_CHANCE = Metric(
    "rollcast_advice_chance", "Probability that the rest of the budget gains the required pass rate; absent if unknown"
)
ADVICE_GAIN = Metric(
    "rollcast_advice_gain", "Pass rate that the next tenth or all of the rest gains", ("stretch", "quantile")
)
ADVICE_DEVICE_HOURS = Metric(
    "rollcast_advice_device_hours", "Compute of the next tenth or of all of the rest", ("stretch",)
)
FORECAST_EARLIER = Metric(
    "rollcast_forecast_earlier_pass_rate",
    "Forecast made for the newest reading when half of its compute was spent, by quantile",
    ("quantile",),
)
FORECAST_MISSED = Metric(
    "rollcast_forecast_missed_readings",
    "Newest readings in a row outside the 90 % interval forecast for them at half of their compute; at most 10",
)
FORECAST_POINTS = Metric("rollcast_forecast_points", "Evaluations in the fit")
# Served with future timestamps by the forecaster's query API only: Prometheus refuses samples that are minutes ahead.
TIMELINE_PASS_RATE = Metric(
    "rollcast_timeline_pass_rate", "Pass rate over time: what an evaluation then will read", ("quantile",)
)
TIMELINE_DEVICE_HOURS = Metric(
    "rollcast_timeline_device_hours", "Compute over time: measured, then at the measured rate"
)
FORECAST_LOST_POINTS = Metric(
    "rollcast_forecast_lost_points", "Evaluations left out because their step is not in the surviving history"
)
FORECAST_INCOMPLETE_POINTS = Metric(
    "rollcast_forecast_incomplete_points", "Evaluations left out because less than 90 % of their prompts were graded"
)
FORECAST_SOURCE_UP = Metric("rollcast_forecast_source_up", "1 while the forecaster's source answers")
FORECAST_REFITS = Metric("rollcast_forecast_refits_total", "Refits since start")
FORECAST_SKIPPED = Metric("rollcast_forecast_skipped_total", "Readings that were skipped, by reason", ("reason",))


def is_own_curve(dataset: str) -> bool:
    """Whether evaluations with this label are the run's own curve, not of a part of its prompts or a downstream set."""
    return not dataset.startswith((PART_PREFIX, ENVIRONMENT_PREFIX, DOWNSTREAM_PREFIX))


# Loggers
LOGGER_UP = Metric("rollcast_logger_up", "1 while the logger's destination takes records", ("logger",))
LOGGER_TOLD = Metric("rollcast_logger_records_total", "Records of the run folder sent", ("logger",))
LOGGER_WAITING = Metric(
    "rollcast_logger_waiting_records", "Records read from the run folder and not taken yet", ("logger",)
)
LOGGER_DROPPED = Metric(
    "rollcast_logger_dropped_total",
    "Records or numbers left out, by reason (refused|unreadable|not_finite)",
    ("logger", "reason"),
)

# Autoscaler
GENERATORS_DESIRED = Metric("rollcast_generators_desired", "Generators wanted; absent until known")
AUTOSCALER_NEED = Metric(
    "rollcast_autoscaler_need_tokens_per_second", "Tokens to sample for a trainer that never waits for a batch"
)
AUTOSCALER_CAPABILITY = Metric(
    "rollcast_autoscaler_capability_tokens_per_second", "Tokens that one generator was seen to sample"
)
AUTOSCALER_MEASURED = Metric("rollcast_autoscaler_measured", "1 while the run can be measured; 0 = the number is held")
AUTOSCALER_CHANGES = Metric("rollcast_autoscaler_changes_total", "Changes of the number", ("direction",))
AUTOSCALER_FAILURES = Metric(
    "rollcast_autoscaler_failures_total", "Calls to Kubernetes that failed, by purpose", ("call",)
)
AUTOSCALER_SKIPPED = Metric(
    "rollcast_autoscaler_skipped_total", "Pages that could not be read, samples left out, by reason", ("reason",)
)


def all_metrics() -> tuple[Metric, ...]:
    """Every metric named in this file."""
    return tuple(value for value in globals().values() if isinstance(value, Metric))
