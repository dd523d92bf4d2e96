"""Means of the numbers that environments give of their episodes."""

from collections import defaultdict
from collections.abc import Iterable

from rollcast.rollouts.environment_metrics import MAX_METRICS
from rollcast.rollouts.records import Episode, RolloutGroup
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.exporter import Exporter


def mean_metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """Of each number: the mean over the episodes that gave it.

    An episode without a verdict counts too.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode.metrics.items():
            values[name].append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(values.items())}


def episodes_of(groups: Iterable[RolloutGroup]) -> list[Episode]:
    return [
        rollout.episode
        for group in groups
        for rollout in group.rollouts
        if rollout.episode is not None
    ]


class EnvironmentMetrics:
    """The numbers of training episodes by environment, exported step by step.

    An environment may give other names for each row. Only the first MAX_METRICS of a process are
    kept, since every name is a time series.
    """

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._names: defaultdict[str, set[str]] = defaultdict(set)

    def export(self, groups: Iterable[RolloutGroup]) -> dict[str, dict[str, float]]:
        """The means of a batch by environment and name."""
        by_environment: defaultdict[str, list[Episode]] = defaultdict(list)
        for episode in episodes_of(groups):
            if episode.metrics:
                by_environment[episode.environment].append(episode)
        return {
            environment: self._export_one(environment, mean_metrics(episodes))
            for environment, episodes in sorted(by_environment.items())
        }

    def _export_one(self, environment: str, means: dict[str, float]) -> dict[str, float]:
        names = self._names[environment]
        names.update([name for name in means if name not in names][: MAX_METRICS - len(names)])
        kept = {name: mean for name, mean in means.items() if name in names}
        for name, mean in kept.items():
            self._exporter.set(
                episode_metrics.ENVIRONMENT_METRIC, mean, environment=environment, metric=name
            )
        if num_left_out := len(means) - len(kept):
            self._exporter.add(
                episode_metrics.EPISODE_METRICS_LEFT_OUT, num_left_out, environment=environment
            )
        return kept
