"""TRL and the Trainer of transformers: trainer_state.json of a checkpoint, or its log_history alone.

An entry of training is {"loss": .., "reward": .., "epoch": .., "step": ..}, one of an evaluation {"eval_reward": ..,
"epoch": .., "step": ..}.
"""

from collections.abc import Mapping
from typing import Any

NAME = "trainer_state.json of TRL or transformers"
LOG_NAME = "log history of TRL or transformers"
STATE_FILE = "trainer_state.json"
MARKS = frozenset({"loss", "reward", "eval_loss", "eval_reward", "train_runtime"})


def log_of(document: Mapping[str, Any]) -> list[Any] | None:
    """The log of a trainer's state; None if the document is not one."""
    log = document.get("log_history")
    return log if isinstance(log, list) else None


class TrlMark:
    """Whether every entry has an epoch and a step, and one has a loss, a reward or the run's time."""

    def __init__(self) -> None:
        self._all_timed = True
        self._any_marked = False

    def see(self, entry: Mapping[str, Any]) -> None:
        """The next entry."""
        self._all_timed = self._all_timed and "epoch" in entry and "step" in entry
        self._any_marked = self._any_marked or not MARKS.isdisjoint(entry)

    @property
    def is_one(self) -> bool:
        """Whether the entries seen are such a log."""
        return self._all_timed and self._any_marked
