"""The trace of a package that played an episode itself, and the record of the same session.

`join` of the package's kind joins them and names the turns that are trained.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollcast.rollouts.records import EpisodeEnd

Ranges = Sequence[tuple[int, int]]


class RecordTurn(Protocol):
    """A turn of the record."""

    @property
    def number(self) -> int: ...

    @property
    def parent_turn(self) -> int | None:
        """Number of the turn that its history continues. None = no recorded one."""

    @property
    def assistant_message(self) -> Mapping[str, Any] | None:
        """None = histories are given as tokens."""


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """The record of a session, as far as a trace is joined with it."""

    num_turns: int
    read_turns: Sequence[RecordTurn]
    """Turns that a client read, the oldest first."""
    turn_tokens: Callable[[int], tuple[list[int], list[int]]]
    """All tokens before the turn of a number, and its own."""


class ProgramTrace(Protocol):
    """The report of a package at the end of an episode."""

    @property
    def reward(self) -> float | None:
        """The package's own value, not checked. None = no reward."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Numbers of the package, not checked."""


@dataclass(frozen=True, slots=True)
class TracedLoss:
    """Which tokens of a record a trace trains, and how the episode ended."""

    untrained: frozenset[int]
    """Numbers of the turns that it does not have, or has without loss."""
    masked: Mapping[int, Ranges] = field(default_factory=dict)
    """The tokens without loss in each turn that it trains in part, counted from the turn's
    first."""
    end: EpisodeEnd | None = None
    """The limit of the package that ended the episode; None = none did."""


class UnusableTraceError(Exception):
    """Nothing can be trained by this trace."""


class TraceDisagreementError(UnusableTraceError):
    """The trace and the record differ, so that it is not known what the reward is for."""
