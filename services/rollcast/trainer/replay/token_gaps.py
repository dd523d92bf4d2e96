"""Recorded log-probs of single tokens, compared with replayed ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.trainer.replay.comparison import Component, ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch, SequenceKey


def tolerance(batch: RecordedBatch) -> float:
    """Nats by which kernels may differ at one token."""
    # 16 bits round logits of 10 to 0.03; a token far from the likely ones shows several of these.
    return 1e-3 if batch.is_float32 else 0.25


class TokenGap(NamedTuple):
    """One token."""

    nats: float
    key: SequenceKey
    position: int
    recorded: float
    replayed: float


class TokenGaps:
    """Collects the gaps of sequences, and remembers the largest."""

    def __init__(self, batch: RecordedBatch) -> None:
        self._batch = batch
        self._num_compared = 0
        self._num_different = 0
        self.worst: TokenGap | None = None
        self.different: dict[SequenceKey, NDArray[np.int64]] = {}
        """Positions of tokens beyond the tolerance."""

    def add(
        self,
        key: SequenceKey,
        positions: NDArray[np.int64],
        recorded: NDArray[Any],
        replayed: NDArray[Any],
        column: str,
    ) -> None:
        """`positions` [T] of these tokens in the sequence. `column`: of the table of the tokens of
        one group.
        """
        gaps = np.abs(recorded.astype(np.float64) - replayed)
        # A log-prob that is not a number is as wrong as can be.
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        beyond = positions[gaps > tolerance(self._batch)]
        self._num_compared += len(gaps)
        self._num_different += len(beyond)
        if len(beyond):
            self.different[key] = beyond
        if len(gaps) and (self.worst is None or gaps.max() > self.worst.nats):
            largest = int(gaps.argmax())
            numbers = (float(recorded[largest]), float(replayed[largest]))
            self.worst = TokenGap(float(gaps[largest]), key, int(positions[largest]), *numbers)
        if self._batch.group == self._batch.bundle.groups[key.group].sequence:
            for position, value in zip(positions.tolist(), replayed.tolist(), strict=True):
                columns = self._batch.replayed_logprobs.setdefault((*key, position), {})
                columns[column] = value

    def report(self, report: ReplayReport, component: Component, check: str, cause: str) -> None:
        worst = self.worst
        if worst is None:
            report.not_checked(component, check, "the record has no such log-probs")
            return
        reason = f"{cause}: recorded {worst.recorded:.5f}, replayed {worst.replayed:.5f}"
        location = self._batch.locate(worst.key, worst.position)
        counts = (self._num_compared, self._num_different)
        report.add(component, check, *counts, reason, location, worst.nats)
