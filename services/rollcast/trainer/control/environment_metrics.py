"""Means of the numbers that environments give of their episodes."""

from collections import defaultdict
from collections.abc import Iterable

from rollcast.rollouts.environment_metrics import MAX_METRICS
from rollcast.rollouts.records import Episode, RolloutGroup
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

log = get_logger()


class MetricMeans:
    """The mean of each number over the episodes that gave it, by environment and name.

    An environment may give other names for each row. Only the first MAX_METRICS of a process are
    kept, since every name is a time series, and a column of the loggers.
    """

    def __init__(self) -> None:
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        self._has_warned: set[str] = set()

    def mean(self, groups: Iterable[RolloutGroup]) -> dict[str, dict[str, float]]:
        """Environment -> name -> mean."""
        values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for episode in _episodes(groups):
            for name, value in episode.metrics.items():
                if self._is_kept(episode.environment, name):
                    values[episode.environment][name].append(value)
        return {
            environment: {name: sum(numbers) / len(numbers) for name, numbers in named.items()}
            for environment, named in values.items()
        }

    def _is_kept(self, environment: str, name: str) -> bool:
        names = self._names[environment]
        if name in names:
            return True
        if len(names) < MAX_METRICS:
            names.add(name)
            return True
        if environment not in self._has_warned:
            self._has_warned.add(environment)
            log.warning(
                "an environment gives more numbers than are kept",
                environment=environment,
                left_out=name,
                kept=MAX_METRICS,
            )
        return False


def export_means(exporter: Exporter, means: dict[str, dict[str, float]]) -> None:
    """Export the means of a batch of training episodes."""
    for environment, named in means.items():
        for name, mean in named.items():
            exporter.set(
                episode_metrics.ENVIRONMENT_METRIC, mean, environment=environment, name=name
            )


def _episodes(groups: Iterable[RolloutGroup]) -> list[Episode]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return [rollout.episode for rollout in rollouts if rollout.episode is not None]
