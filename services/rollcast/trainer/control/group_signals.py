"""Counts what the training groups that come back can teach, and warns if none of the first ones is of use."""

from collections import Counter

from rollcast.config.recipe import Recipe
from rollcast.recipe.group_signal import GroupSignal, signal_of, why_none_is_used
from rollcast.rollouts.records import RolloutGroup
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

log = get_logger()


class GroupSignals:
    """Counts since this process began. One thread."""

    def __init__(self, recipe: Recipe, exporter: Exporter) -> None:
        self._recipe = recipe
        self._exporter = exporter
        self._counts: Counter[str] = Counter()
        self._has_warned = False
        for signal in GroupSignal:  # a counter that begins at 1 would hide the first
            exporter.add(names.GROUP_SIGNALS, 0.0, signal=str(signal))

    def note(self, group: RolloutGroup) -> None:
        """Count a group that answers its task, once."""
        rollouts = group.rollouts
        signal = signal_of(
            [rollout.reward for rollout in rollouts],
            [rollout.truncated for rollout in rollouts],
            [rollout.has_verdict for rollout in rollouts],
            self._recipe,
        )
        self._counts[str(signal)] += 1
        self._exporter.add(names.GROUP_SIGNALS, signal=str(signal))
        if not self._has_warned and (sentence := why_none_is_used(self._counts, self._recipe)):
            self._has_warned = True
            log.warning(sentence)
