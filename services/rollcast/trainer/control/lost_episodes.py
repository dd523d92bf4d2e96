"""Counts the episodes that environments lose after an answered turn, and says so if they are many.

Those episodes cost tokens and teach nothing. If a mistake of the model ends them, it is never
punished.
"""

import re
from collections import Counter
from pathlib import Path

from rollcast.rollouts.records import Episode, RolloutGroup
from rollcast.runfolder.episode_losses import EpisodeLosses, write_losses
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.episode_statistics import is_lost

_EXIT_CODE = re.compile(r"ended with exit code (\d+)(: |$)")
log = get_logger()


class LostEpisodes:
    """The losses of a run since the trainer's start."""

    def __init__(self, folder: Path) -> None:
        """folder: of the run."""
        self._folder = folder
        self._num_episodes = Counter[str]()
        self._kinds: dict[str, Counter[str]] = {}
        """By environment: losses by exit code, or by the beginning of their reason."""
        self._newest: dict[tuple[str, str], Episode] = {}
        self._num_written: dict[str, int] = {}

    def note(self, group: RolloutGroup) -> None:
        """Count the episodes of a group that answers its task.

        Raises UserError if the disk refuses.
        """
        for rollout in group.rollouts:
            episode = rollout.episode
            if episode is None:
                continue
            self._num_episodes[episode.environment] += 1
            if is_lost(episode):
                self._note_lost(episode)

    def _note_lost(self, episode: Episode) -> None:
        name = episode.environment
        exit_code = own_exit_code(episode.reason)
        # Reasons of one kind differ in their ends.
        kind = _without_name(episode)[:40] if exit_code is None else f"exit code {exit_code}"
        self._kinds.setdefault(name, Counter())[kind] += 1
        self._newest[name, kind] = episode
        num_lost = self._kinds[name].total()
        # Said from the third on, and then whenever their number has doubled.
        is_due = num_lost >= max(3, 2 * self._num_written.get(name, 0))
        # Two per cent. Chosen: one in fifty is one in each third group of sixteen.
        if is_due and num_lost > 0.02 * self._num_episodes[name]:
            self._num_written[name] = num_lost
            losses = self._losses()
            write_losses(self._folder, losses)
            (environment_loss,) = (loss for loss in losses if loss.environment == name)
            log.error(
                "episodes are lost after an answered turn",
                environment=name,
                said=environment_loss.sentence(),
            )

    def _losses(self) -> list[EpisodeLosses]:
        losses = []
        for name in self._num_written:
            ((kind, _),) = self._kinds[name].most_common(1)
            episode = self._newest[name, kind]
            losses.append(
                EpisodeLosses(
                    environment=name,
                    num_episodes=self._num_episodes[name],
                    num_lost=self._kinds[name].total(),
                    reason=_without_name(episode),
                    exit_code=own_exit_code(episode.reason),
                )
            )
        return losses


def own_exit_code(reason: str) -> int | None:
    """The exit code by which a program ended itself.

    None = a signal, a refused request, or another reason.
    """
    match = _EXIT_CODE.search(reason)
    # 126 and more are a shell's own codes and signals, which are never the model's mistake.
    return int(match[1]) if match is not None and int(match[1]) < 126 else None


def _without_name(episode: Episode) -> str:
    return episode.reason.removeprefix(f"environment {episode.environment}: ")
