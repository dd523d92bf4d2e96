"""Episodes: how long they are, where their time goes, and whether their environments keep up."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring import variables
from monitoring.panels import SECONDS, SHARE, Panel, Query, assemble, lines
from monitoring.promql import mean, newest_evaluation, quantile, series
from monitoring.variables import RUN
from rollcast.telemetry import episode_metrics, evaluation_metrics, generator_metrics
from rollcast.telemetry.metric import Metric

RATE = "$__rate_interval"
NO_REQUESTS = "nothing yet: no agent of this run asks the endpoint, or none was refused"
NO_EPISODES = "no episodes: no prompt of this run names an environment"
NO_EVENTS = "nothing of the kind"
_EACH = "{{environment}}"


def _rate(metric: Metric, *matchers: str, by: str = "environment") -> str:
    return f"sum by ({by}) (rate({series(metric, RUN, *matchers)}[{RATE}]))"


def _of_episodes(metric: Metric) -> list[Query]:
    """Mean of a histogram by environment, and its slowest twentieth."""
    return [
        Query(mean(metric, RUN, RATE, by="environment"), f"{_EACH}, mean"),
        Query(quantile(0.95, metric, RUN, RATE, by="environment"), f"{_EACH}, 95 %"),
    ]


def _malformed() -> Query:
    calls = (
        "sum by (environment) "
        f"(rate({series(episode_metrics.EPISODE_TOOL_CALLS, RUN, suffix='_sum')}[{RATE}]))"
    )
    return Query(f"{_rate(episode_metrics.EPISODE_MALFORMED_CALLS)} / {calls}", _EACH)


def _per_episode(part: str) -> Query:
    count = (
        "sum by (environment) "
        f"(rate({series(episode_metrics.EPISODE_TURNS, RUN, suffix='_count')}[{RATE}]))"
    )
    matcher = f'part="{part}"'
    return Query(f"{_rate(episode_metrics.EPISODE_SECONDS, matcher)} / {count}", f"{_EACH}, {part}")


def _episodes(metric: Metric, what: str) -> Query:
    return Query(f"sum by (environment) ({series(metric, RUN)})", f"{_EACH}, {what}")


def _length() -> list[Panel]:
    return [
        lines(
            "Turns per episode",
            "Turns of the model in the episodes that came back.",
            _of_episodes(episode_metrics.EPISODE_TURNS),
            width=8,
            bounds=(0, None),
            empty=NO_EPISODES,
        ),
        lines(
            "Tool calls per episode",
            "Malformed ones included.",
            _of_episodes(episode_metrics.EPISODE_TOOL_CALLS),
            width=8,
            bounds=(0, None),
            empty=NO_EPISODES,
        ),
        lines(
            "Malformed calls",
            "Share of the tool calls that were unreadable, of unknown tools, or with wrong "
            "arguments. It falls while a "
            "model learns the format.",
            [_malformed()],
            width=8,
            unit=SHARE,
            bounds=(0, None),
            empty=NO_EPISODES,
        ),
        lines(
            "How episodes end",
            (
                "Episodes a second. tokens, turns, seconds: a budget ran out; failed: the "
                "environment was given up."
            ),
            [
                Query(
                    _rate(episode_metrics.EPISODES, by="environment, end"), f"{_EACH}, {{{{end}}}}"
                )
            ],
            width=12,
            stacked=True,
            empty=NO_EPISODES,
        ),
        lines(
            "Pass rate by environment",
            "Newest reading on the held-out prompts of each environment, if there are several.",
            [
                Query(
                    newest_evaluation(
                        evaluation_metrics.EVAL_PASS_RATE,
                        RUN,
                        f'dataset=~"{evaluation_metrics.ENVIRONMENT_PREFIX}.*"',
                        by="dataset",
                    ),
                    "{{dataset}}",
                )
            ],
            width=12,
            unit=SHARE,
            bounds=(0, 1),
            empty="one environment or none: its curve is the run's",
        ),
    ]


def _time() -> list[Panel]:
    return [
        lines(
            "Environment and sampling",
            (
                "Mean seconds of an episode in its environment (set-up, tool calls, reward) and in "
                "sampling."
            ),
            [_per_episode("environment"), _per_episode("sampling")],
            width=8,
            unit=SECONDS,
            bounds=(0, None),
            empty=NO_EPISODES,
        ),
        lines(
            "Episodes in flight",
            "On all generators, and of these the ones that wait for a free environment.",
            [
                _episodes(episode_metrics.EPISODES_IN_FLIGHT, "in flight"),
                _episodes(episode_metrics.EPISODES_WAITING, "waiting"),
            ],
            width=8,
            bounds=(0, None),
            empty=NO_EPISODES,
        ),
        lines(
            "Slots in use",
            "Rollouts that sample or wait to, as a share of the engines' slots. Low while episodes "
            "wait for "
            "environments: those starve the engines.",
            [
                Query(
                    f"sum by (run) ({series(generator_metrics.RUNNING_ROLLOUTS, RUN)})"
                    f" / sum by (run) ({series(generator_metrics.GENERATOR_SLOTS, RUN)})",
                    "in use",
                )
            ],
            width=8,
            unit=SHARE,
            bounds=(0, None),
        ),
    ]


def _losses() -> list[Panel]:
    failed = 'end="failed"'
    kept = 'state="kept"'
    counted = (
        (f"sum by (environment) ({series(episode_metrics.EPISODES, RUN, failed)})", "given up"),
        (
            f"sum by (environment) ({series(episode_metrics.EPISODES_LOST, RUN)})",
            "lost after a turn",
        ),
        (f"sum by (environment) ({series(episode_metrics.EPISODE_RESTARTS, RUN)})", "begun again"),
        (
            f"sum by (environment) ({series(episode_metrics.EPISODE_CALLS_OVERDUE, RUN)})",
            "calls overdue",
        ),
    )
    return [
        lines(
            "Failures of environments",
            "Since the start: episodes that began again because their environment failed, those "
            "given up, those of "
            "them that were lost after an answered turn, tool calls beyond their deadline, and all "
            "failures by stage. "
            "If a mistake of the model ends a program, name its exit code in model_exit_codes of "
            "the environment.",
            [
                *(Query(expression, f"{_EACH}, {what}") for expression, what in counted),
                Query(
                    (
                        "sum by (environment, stage) "
                        f"({series(episode_metrics.EPISODE_FAILURES, RUN)})"
                    ),
                    f"{_EACH}, {{{{stage}}}}",
                ),
            ],
            width=8,
            bounds=(0, None),
            empty=NO_EVENTS,
        ),
        lines(
            "Splits, cuts and tokens thrown away",
            "Since the start: further token sequences of episodes, answers of environments that "
            "were shortened, and "
            "tokens of episodes that began again.",
            [
                _episodes(episode_metrics.EPISODE_BRANCHES, "splits"),
                _episodes(episode_metrics.EPISODE_ANSWERS_CUT, "answers cut"),
                _episodes(episode_metrics.EPISODE_TOKENS_DISCARDED, "tokens thrown away"),
            ],
            width=8,
            bounds=(0, None),
            empty=NO_EVENTS,
            overrides={"/thrown away/": {"custom.axisPlacement": "right"}},
        ),
        lines(
            "KV kept between turns",
            (
                "Share of the tokens before later turns whose KV the cache still had. The rest was "
                "computed again, because the cache had lost it or a split began a further sequence."
            ),
            [
                Query(
                    f"{_rate(generator_metrics.EPISODE_KV_TOKENS, kept, by='run')} / "
                    f"{_rate(generator_metrics.EPISODE_KV_TOKENS, by='run')}",
                    "kept",
                )
            ],
            width=8,
            unit=SHARE,
            bounds=(0, 1),
            empty=NO_EPISODES,
        ),
    ]


def _endpoint() -> list[Panel]:
    return [
        lines(
            "Requests that were refused",
            "Since the start, by code of the answer. A few are agents that ran out of their budget "
            "(context_length_exceeded); others are faults of the agent's program.",
            [
                Query(
                    f"sum by (environment, code) ({series(episode_metrics.ENDPOINT_REFUSED, RUN)})",
                    f"{_EACH}, {{{{code}}}}",
                )
            ],
            width=8,
            bounds=(0, None),
            empty=NO_REQUESTS,
        ),
        lines(
            "Histories that became further sequences",
            "Since the start, by reason: the agent sent other tokens than were sampled, a new "
            "chat, two requests after "
            "one turn, a retry, or text that the chat's form changes.",
            [
                Query(
                    (
                        "sum by (environment, reason) "
                        f"({series(episode_metrics.ENDPOINT_EXTRA_SEQUENCES, RUN)})"
                    ),
                    f"{_EACH}, {{{{reason}}}}",
                )
            ],
            width=8,
            bounds=(0, None),
            empty=NO_REQUESTS,
        ),
        lines(
            "Left out of training",
            "Since the start: completions that no agent read, episodes whose agent recorded other "
            "answers than were "
            "sampled, and settings of sampling in place of which the run's were used. Trained, and "
            "counted here: "
            "episodes that a mistake of the model ended.",
            [
                _episodes(episode_metrics.ENDPOINT_UNREAD, "unread completions"),
                _episodes(episode_metrics.ENDPOINT_DISAGREEMENTS, "disagreements"),
                _episodes(episode_metrics.ENDPOINT_REPLACED, "settings replaced"),
                _episodes(episode_metrics.ENDPOINT_MISTAKES, "ended by a mistake"),
            ],
            width=8,
            bounds=(0, None),
            empty=NO_REQUESTS,
        ),
    ]


def _own_numbers() -> list[Panel]:
    return [
        lines(
            "Environments' own numbers",
            "What get_metrics of a class returned, or metrics of verifiers and OpenEnv: means over "
            "the training "
            "episodes of the last step. Evaluations' means are in evaluations.jsonl and the "
            "loggers.",
            [
                Query(
                    (
                        "max by (environment, name) "
                        f"({series(episode_metrics.ENVIRONMENT_METRIC, RUN)})"
                    ),
                    f"{_EACH}, {{{{name}}}}",
                )
            ],
            width=24,
            empty="no environment gave a number",
        ),
    ]


def episodes_dashboard() -> Dashboard:
    return assemble(
        "episodes",
        "Episodes",
        "Turns, calls, environments and failures of one run whose prompts name environments.",
        [
            ("Length", _length()),
            ("Time", _time()),
            ("Environments' own numbers", _own_numbers()),
            ("Failures and losses", _losses()),
            ("Agents at the endpoint", _endpoint()),
        ],
        [variables.data_source(), variables.namespace(), variables.run()],
        time=("now-3h", "now"),
    )
