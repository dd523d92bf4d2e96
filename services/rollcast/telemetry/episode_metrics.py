"""Metrics of episodes and of the endpoint for harnesses.

The trainer counts the episodes that came back usable, training and evaluation; the generators
export their own state.
"""

from rollcast.telemetry.metric import Metric

_ENVIRONMENT = ("environment",)
_COUNTS_PER_EPISODE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)

EPISODES = Metric(
    "rollcast_episodes_total", "Episodes that came back, by their end", ("environment", "end")
)
EPISODE_TURNS = Metric(
    "rollcast_episode_turns",
    "Turns of the model in an episode",
    _ENVIRONMENT,
    buckets=_COUNTS_PER_EPISODE,
)
EPISODE_TOOL_CALLS = Metric(
    "rollcast_episode_tool_calls",
    "Tool calls in an episode",
    _ENVIRONMENT,
    buckets=_COUNTS_PER_EPISODE,
)
EPISODE_MALFORMED_CALLS = Metric(
    "rollcast_episode_malformed_calls_total",
    "Tool calls that were unreadable or wrong",
    _ENVIRONMENT,
)
EPISODE_SECONDS = Metric(
    "rollcast_episode_seconds_total",
    "Time of episodes, by part (environment|sampling)",
    ("environment", "part"),
)
EPISODE_RESTARTS = Metric(
    "rollcast_episode_restarts_total",
    "Episodes that began again because their environment failed",
    _ENVIRONMENT,
)
EPISODES_LOST = Metric(
    "rollcast_episodes_lost_total",
    "Episodes that their environment lost after an answered turn",
    ("environment",),
)
EPISODE_FAILURES = Metric(
    "rollcast_episode_failures_total",
    (
        "Failures of environments, by stage (start|reset|call|reward|metrics); slot: the engine "
        "had none free in time"
    ),
    ("environment", "stage"),
)
EPISODE_BRANCHES = Metric(
    "rollcast_episode_branches_total",
    "Splits: a turn could not extend the tokens before it",
    _ENVIRONMENT,
)
EPISODES_IN_FLIGHT = Metric(
    "rollcast_episodes_in_flight", "Episodes under way in this generator", _ENVIRONMENT
)
EPISODES_WAITING = Metric(
    "rollcast_episodes_waiting",
    "Of the episodes in flight: those that wait for a free environment",
    _ENVIRONMENT,
)
EPISODE_CALLS_OVERDUE = Metric(
    "rollcast_episode_calls_overdue_total", "Tool calls that exceeded their deadline", _ENVIRONMENT
)
EPISODE_ANSWERS_CUT = Metric(
    "rollcast_episode_answers_cut_total",
    "Answers of environments that were shortened to their limit",
    _ENVIRONMENT,
)
EPISODE_FORK_SERVERS_REPLACED = Metric(
    "rollcast_episode_fork_servers_replaced_total",
    "Fork servers that did not answer and were ended",
    _ENVIRONMENT,
)
ENVIRONMENT_METRIC = Metric(
    "rollcast_environment_metric",
    "An environment's own number: mean over the episodes of the last step that gave it",
    ("environment", "name"),
)
EPISODE_METRICS_LEFT_OUT = Metric(
    "rollcast_environment_metrics_left_out_total",
    "Numbers of environments that were none, had no usable name, or were too many",
    _ENVIRONMENT,
)
EPISODE_TOKENS_DISCARDED = Metric(
    "rollcast_episode_tokens_discarded_total",
    "Sampled tokens of episodes that began again",
    _ENVIRONMENT,
)

ENDPOINT_EXTRA_SEQUENCES = Metric(
    "rollcast_endpoint_sequences_total",
    "Further sequences of harnesses, by reason (rewritten|new|forked|retried|format)",
    ("environment", "reason"),
)
ENDPOINT_UNREAD = Metric(
    "rollcast_endpoint_unread_turns_total",
    "Completions that no harness read, left out of training",
    _ENVIRONMENT,
)
ENDPOINT_REPLACED = Metric(
    "rollcast_endpoint_replaced_settings_total",
    "Sampling settings of requests that the run's replaced",
    _ENVIRONMENT,
)
ENDPOINT_REFUSED = Metric(
    "rollcast_endpoint_refused_requests_total",
    "Refused requests of harnesses, by code",
    ("environment", "code"),
)
ENDPOINT_DISAGREEMENTS = Metric(
    "rollcast_endpoint_disagreements_total",
    "Episodes with another trace by verifiers, not trained",
    _ENVIRONMENT,
)
ENDPOINT_MISTAKES = Metric(
    "rollcast_endpoint_mistakes_total",
    "Episodes that a mistake of the model ended, with a reward",
    _ENVIRONMENT,
)
ENDPOINT_SINGLE_TOKENS = Metric(
    "rollcast_endpoint_single_tokens_total", "Sampled for calls without a session"
)
