"""Recorded log-probs of single tokens, compared with replayed ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.recorded.step_bundle import RecordedSequence
from rollcast.trainer.replay.finding import Part, ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch


class TokenOrigin(NamedTuple):
    """A sequence of the batch, by indices."""

    group: int
    rollout: int
    number: int


def tolerance(batch: RecordedBatch) -> float:
    """Nats by which kernels may differ at one token."""
    # 16 bits round logits of 10 to 0.03; a token far from the likely ones shows several of these.
    return 1e-3 if batch.is_float32 else 0.25


@dataclass(eq=False)
class TokenGaps:
    """Collects the gaps of sequences, and remembers the largest."""

    batch: RecordedBatch
    num_compared: int = 0
    num_different: int = 0
    largest: float = 0.0
    worst: tuple[TokenOrigin, int, float, float] | None = None
    """Origin, token, recorded and replayed log-prob of the largest gap."""
    different: dict[TokenOrigin, NDArray[np.int64]] = field(default_factory=dict)
    """Sequence -> positions of tokens beyond the tolerance."""

    def add(
        self,
        sequence: RecordedSequence | TokenOrigin,
        positions: NDArray[np.int64],
        recorded: NDArray[Any],
        replayed: NDArray[Any],
        column: str,
    ) -> None:
        """`positions` [T] of these tokens in the sequence. `column`: where the log-probs of a group
        that is looked at are noted.
        """
        origin = TokenOrigin(sequence.group, sequence.rollout, sequence.number)
        gaps = np.abs(recorded.astype(np.float64) - replayed)
        # A log-prob that is not a number is as wrong as can be.
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        beyond = positions[gaps > tolerance(self.batch)]
        self.num_compared += len(gaps)
        self.num_different += len(beyond)
        if len(beyond):
            self.different[origin] = beyond
        if len(gaps) and (self.worst is None or gaps.max() > self.largest):
            at = int(gaps.argmax())
            self.largest = float(gaps[at])
            self.worst = (origin, int(positions[at]), float(recorded[at]), float(replayed[at]))
        self._note(origin, positions, replayed, column)

    def _note(
        self, origin: TokenOrigin, positions: NDArray[np.int64], replayed: NDArray[Any], column: str
    ) -> None:
        if self.batch.group != self.batch.bundle.groups[origin.group].sequence:
            return
        for position, value in zip(positions.tolist(), replayed.tolist(), strict=True):
            self.batch.token_columns.setdefault((*origin, position), {})[column] = value

    def report(self, report: ReplayReport, part: Part, check: str, how: str) -> None:
        if not self.num_compared:
            report.not_checked(part, check, "the record has no such log-probs")
            return
        reason = ""
        place = None
        if self.worst is not None and self.num_different:
            origin, token, recorded, replayed = self.worst
            place = self.batch.place(*origin, token)
            reason = f"{how}: recorded {recorded:.5f}, replayed {replayed:.5f}"
        report.add(
            part,
            check,
            num_compared=self.num_compared,
            num_different=self.num_different,
            largest=self.largest,
            reason=reason,
            place=place,
        )
