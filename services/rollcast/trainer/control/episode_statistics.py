"""Counts of episodes: metrics by environment, and the means that a step's record holds."""

from collections.abc import Sequence

from rollcast.rollouts.records import Episode, EpisodeEnd, RolloutGroup
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.exporter import Exporter


def count_episodes(exporter: Exporter, group: RolloutGroup) -> None:
    """Count the episodes of a group that answers its task, once."""
    for rollout in group.rollouts:
        if rollout.episode is not None:
            count_episode(exporter, rollout.episode)


def count_episode(exporter: Exporter, episode: Episode) -> None:
    name = episode.environment
    exporter.add(episode_metrics.EPISODES, environment=name, end=str(episode.end))
    if is_lost(episode):
        exporter.add(episode_metrics.EPISODES_LOST, environment=name)
    exporter.observe(episode_metrics.EPISODE_TURNS, len(episode.turns), environment=name)
    exporter.observe(
        episode_metrics.EPISODE_TOOL_CALLS, num_tool_calls([episode]), environment=name
    )
    exporter.add(
        episode_metrics.EPISODE_MALFORMED_CALLS, num_malformed_calls([episode]), environment=name
    )
    exporter.add(
        episode_metrics.EPISODE_SECONDS,
        episode.environment_seconds,
        environment=name,
        part="environment",
    )
    exporter.add(
        episode_metrics.EPISODE_SECONDS, episode.sampling_seconds, environment=name, part="sampling"
    )
    exporter.add(episode_metrics.EPISODE_RESTARTS, episode.restarts, environment=name)
    exporter.add(episode_metrics.EPISODE_BRANCHES, len(episode.branches), environment=name)


def is_lost(episode: Episode) -> bool:
    """Whether its environment failed after the model had answered."""
    return episode.end is EpisodeEnd.FAILED and bool(episode.turns)


def statistics_of_episodes(episodes: Sequence[Episode]) -> dict[str, float]:
    """The fields of a step's record that are about episodes.

    Empty without any; a share of nothing is left out.
    """
    if not episodes:
        return {}
    calls = num_tool_calls(episodes)
    environment_seconds = sum(episode.environment_seconds for episode in episodes)
    seconds = environment_seconds + sum(episode.sampling_seconds for episode in episodes)
    statistics = {
        "episode_turns_mean": sum(len(episode.turns) for episode in episodes) / len(episodes),
        "episode_calls_mean": calls / len(episodes),
    }
    if calls > 0:
        statistics["malformed_calls_share"] = num_malformed_calls(episodes) / calls
    if seconds > 0:
        statistics["environment_seconds_share"] = environment_seconds / seconds
    return statistics


def num_tool_calls(episodes: Sequence[Episode]) -> int:
    """Tool calls, malformed ones included."""
    return sum(turn.tool_calls for episode in episodes for turn in episode.turns)


def num_malformed_calls(episodes: Sequence[Episode]) -> int:
    return sum(turn.malformed_calls for episode in episodes for turn in episode.turns)
