"""Metrics of a generator."""

from rollcast.telemetry.metric import DURATION_BUCKETS_SECONDS, Metric

POLICY_STEP = Metric(
    "rollcast_policy_step", "Step of the weights the generator holds", ("generator",)
)
WEIGHT_PAUSE_SECONDS = Metric(
    "rollcast_weight_pause_seconds",
    "Pause of generation to apply weights",
    buckets=DURATION_BUCKETS_SECONDS,
)
WEIGHT_LOAD_SECONDS = Metric(
    "rollcast_weight_load_seconds",
    "Of the pause: copying the parameters into the model",
    buckets=DURATION_BUCKETS_SECONDS,
)
WEIGHT_RECEIVE_SECONDS = Metric(
    "rollcast_weight_receive_seconds",
    "Background reception of a version",
    buckets=DURATION_BUCKETS_SECONDS,
)
WEIGHT_PULLED_BYTES = Metric(
    "rollcast_weight_pulled_bytes_total", "Bytes of versions pulled from the store of weights"
)
GENERATOR_IDLE = Metric(
    "rollcast_generator_idle_seconds_total", "Time in which the generator had no rollout"
)
RUNNING_ROLLOUTS = Metric("rollcast_running_rollouts", "Rollouts in the engine")
GENERATOR_SLOTS = Metric(
    "rollcast_generator_slots", "Rollouts that this generator runs concurrently"
)
GENERATOR_PARKED = Metric(
    "rollcast_generator_parked",
    (
        "1 if this generator has ended its engine because memory ran out, and only waits for its "
        "own end"
    ),
)
SAMPLED_TOKENS = Metric(
    "rollcast_sampled_tokens_total", "Tokens sampled, counted as the engine steps"
)
INFLIGHT_TOKENS = Metric(
    "rollcast_inflight_tokens", "Tokens that the requests in the engine have sampled so far"
)
DRAFTED_TOKENS = Metric(
    "rollcast_drafted_tokens_total", "Tokens drafted for the engine's model to verify"
)
ACCEPTED_TOKENS = Metric(
    "rollcast_accepted_tokens_total", "Drafted tokens that the engine's model accepted"
)
PREEMPTIONS = Metric("rollcast_preemptions_total", "KV preemptions in the engine")
EPISODE_KV_TOKENS = Metric(
    "rollcast_episode_kv_tokens_total",
    "Tokens before later turns, by their KV: found (kept), lost and computed again (rebuilt), or "
    "computed again as the prompt of a further sequence (split)",
    ("state",),
)
HAND_BACKS = Metric("rollcast_hand_backs_total", "Tasks handed back unfinished")
HAND_OVERS = Metric(
    "rollcast_hand_overs_total",
    "Tasks handed back because the trainer asked: a faster generator continues them",
)
REFUSED = Metric("rollcast_refused_total", "Answers refused because the task had another owner")
ABORTED = Metric(
    "rollcast_aborted_rollouts_total", "Rollouts aborted because they held tokens of lost steps"
)
GRADINGS = Metric("rollcast_gradings_total", "Completions graded, by status", ("status",))
CONTAINED = Metric(
    "rollcast_gradings_contained_total",
    "Gradings in which the sandbox stopped something, by reason "
    "(time|memory|output|exit|crash|forbidden|garbled|reference), or only waited for a core (busy)",
    ("reason",),
)
VERIFIER_FAILURES = Metric(
    "rollcast_verifier_failures_total",
    "Completions left out because their verifier gave no verdict: it failed, or took too long",
    ("verifier",),
)
VERIFIER_REQUESTS = Metric(
    "rollcast_verifier_requests_total",
    (
        "Requests to verifiers that are services, by outcome "
        "(answered|unreachable|refused|unreadable|paused|timeout)"
    ),
    ("verifier", "outcome"),
)
GRADING_TIMEOUTS = Metric(
    "rollcast_grading_timeouts_total",
    "Gradings stopped at a time limit, the program's or the grader's, by data set",
    ("dataset",),
)
GRADING_SECONDS = Metric(
    "rollcast_grading_seconds", "Time to grade one completion", buckets=DURATION_BUCKETS_SECONDS
)
GRADER_FAILURES = Metric(
    "rollcast_grader_failures_total",
    (
        "Calls of a generator to the grader that failed and were repeated, or given up, by gRPC's "
        "status"
    ),
    ("code",),
)
