"""verl's file logger: a line {"step": 12, "data": {"val-core/openai/gsm8k/reward/mean@1": 0.5, ..}} for each step."""

from collections.abc import Mapping
from typing import Any

NAME = "file log of verl"
_DATA = "data/"


class VerlMark:
    """Whether every entry has a step and its data."""

    def __init__(self) -> None:
        self.is_one = True

    def see(self, entry: Mapping[str, Any]) -> None:
        """The next entry."""
        self.is_one = self.is_one and "step" in entry and isinstance(entry.get("data"), dict)


def metric_name(column: str) -> str:
    """The name of a metric next to the step."""
    return column.removeprefix(_DATA)
