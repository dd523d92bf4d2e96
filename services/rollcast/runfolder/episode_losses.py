"""Environments that lose episodes after an answered turn: one file of the run folder, which the
trainer writes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rollcast.runfolder.files import EPISODE_LOSSES
from rollcast.runfolder.records import read_record
from rollcast.runfolder.writing import replace_json


@dataclass(frozen=True, slots=True)
class EpisodeLosses:
    """The losses of one environment so far."""

    environment: str
    num_episodes: int
    num_lost: int
    reason: str
    """Reason of the newest loss of the most frequent kind: exit code and last lines of a
    program."""
    exit_code: int | None = None
    """The exit code by which a program ended itself. None = it was lost otherwise."""

    def sentence(self) -> str:
        """How many episodes are lost and why, and the setting that may change it."""
        share = self.num_lost / max(1, self.num_episodes)
        lost = (
            f"{self.num_lost} of {self.num_episodes} episodes ({share:.1%}) after an answered turn"
        )
        remedy = ""
        if self.exit_code is not None:
            remedy = (
                f"; if the model's mistakes end it so, train them by model_exit_codes: "
                f"[{self.exit_code}] of environment {self.environment}"
            )
        return f"environment {self.environment} loses {lost}, most often: {self.reason}{remedy}"


def write_losses(folder: Path, losses: Sequence[EpisodeLosses]) -> None:
    """Raises UserError if the disk refuses."""
    replace_json(folder / EPISODE_LOSSES, [asdict(loss) for loss in losses])


def read_losses(folder: Path) -> list[EpisodeLosses]:
    """The losses of the run in this folder; none if the file is missing or of another form."""
    try:
        # A few sentences for each environment: a longer file is not the trainer's.
        return read_record(folder / EPISODE_LOSSES, list[EpisodeLosses], max_bytes=1 << 20)
    except (OSError, ValueError):
        return []
