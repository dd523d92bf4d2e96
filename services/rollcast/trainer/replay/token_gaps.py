"""Recorded log-probs of single tokens, compared with replayed ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.recorded.step_bundle import RecordedSequence
from rollcast.trainer.replay.comparison import Component, ReplayReport
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


class TokenGaps:
    """Collects the gaps of sequences, and remembers the largest."""

    def __init__(self, batch: RecordedBatch) -> None:
        self._batch = batch
        self._num_compared = 0
        self._num_different = 0
        self._largest = 0.0
        self.worst: tuple[TokenOrigin, int, float, float] | None = None
        """Origin, token, recorded and replayed log-prob of the largest gap."""
        self.different: dict[TokenOrigin, NDArray[np.int64]] = {}
        """Sequence -> positions of tokens beyond the tolerance."""

    def add(
        self,
        sequence: RecordedSequence | TokenOrigin,
        positions: NDArray[np.int64],
        recorded: NDArray[Any],
        replayed: NDArray[Any],
        column: str,
    ) -> None:
        """`positions` [T] of these tokens in the sequence. `column`: the name under which the
        log-probs of a group that is looked at are noted.
        """
        origin = TokenOrigin(sequence.group, sequence.rollout, sequence.number)
        gaps = np.abs(recorded.astype(np.float64) - replayed)
        # A log-prob that is not a number is as wrong as can be.
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        beyond = positions[gaps > tolerance(self._batch)]
        self._num_compared += len(gaps)
        self._num_different += len(beyond)
        if len(beyond):
            self.different[origin] = beyond
        if len(gaps) and (self.worst is None or gaps.max() > self._largest):
            at = int(gaps.argmax())
            self._largest = float(gaps[at])
            self.worst = (origin, int(positions[at]), float(recorded[at]), float(replayed[at]))
        self._note(origin, positions, replayed, column)

    def _note(
        self, origin: TokenOrigin, positions: NDArray[np.int64], replayed: NDArray[Any], column: str
    ) -> None:
        if self._batch.group != self._batch.bundle.groups[origin.group].sequence:
            return
        for position, value in zip(positions.tolist(), replayed.tolist(), strict=True):
            self._batch.token_columns.setdefault((*origin, position), {})[column] = value

    def report(self, report: ReplayReport, component: Component, check: str, how: str) -> None:
        if not self._num_compared:
            report.not_checked(component, check, "the record has no such log-probs")
            return
        assert self.worst is not None
        origin, token, recorded, replayed = self.worst
        report.add(
            component,
            check,
            self._num_compared,
            self._num_different,
            largest=self._largest,
            reason=f"{how}: recorded {recorded:.5f}, replayed {replayed:.5f}",
            place=self._batch.place(*origin, token),
        )
