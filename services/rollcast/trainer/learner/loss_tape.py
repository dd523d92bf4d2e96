"""The values from which the loss of a step was computed, token by token, and checksums of the
weights around it: what the flight recorder keeps of the ranks' part of a step.

    begin (checksums) -> note (each micro-batch) -> end (checksums; all ranks send theirs to rank 0)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from rollcast.trainer.learner.batch import MicroBatch
from rollcast.trainer.learner.objective import TokenValues
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.whole_weights import (
    CopiedRows,
    NamedWeights,
    Sending,
    WeightSums,
    WholeWeights,
    gather_weights,
    in_digits,
    start,
    take_sums,
    wait_for,
)

Digests = Callable[[], dict[str, str]]
"""Returns the checksum of each weight by name; any thread may call it."""


@dataclass(frozen=True, slots=True, eq=False)
class TapedStep:
    """The ranks' part of one step. `wait` comes before everything else."""

    plan: list[list[MicroBatch]]
    """The micro-batches of each rank."""
    values: list[NDArray[np.float64]]
    """Rows [3 or 4, T] of each rank, in the order of its micro-batches: log-probs, entropy,
    advantages, and log-probs of the reference policy if there is one."""
    digests_before: Digests
    digests_after: Digests
    seconds: float
    """How long the step waited for them."""
    wait: Callable[[], None]
    """Returns when the other ranks' values are there; any thread may call it."""


@dataclass(eq=False)
class LossTape:
    """One rank's. Every rank calls the same methods."""

    ranks: Ranks
    weights: NamedWeights
    plan: list[list[MicroBatch]] = field(default_factory=list)
    """Rank 0: the micro-batches of each rank in the update under way."""
    _noted: list[Tensor] = field(default_factory=list)
    _transfers: list[Sending] = field(default_factory=list)
    _taped: TapedStep | None = None

    def __post_init__(self) -> None:
        self._seconds = 0.0
        self._sums_before: WeightSums = lambda: np.zeros(0, dtype=np.int64)
        self._rows_before: CopiedRows = list
        self._gathering: WholeWeights = dict

    @property
    def copies_whole_weights(self) -> bool:
        """Whether `begin` copies the whole weights, for the checksums: a single rank on the
        host."""
        return self.ranks.num_shards == 1 and self.ranks.device.type == "cpu"

    def gather(self) -> WholeWeights:
        """Begin to gather the weights of now in rank 0's host memory."""
        if self.ranks.rank > 0:
            self._gathering()  # the rows that were sent for the step before
        self._gathering = gather_weights(self.weights, self.ranks)
        return self._gathering

    def take_whole_weights(self) -> WholeWeights:
        """The weights that `begin` copied."""
        rows = self._rows_before
        return lambda: {name: array for (name, _), array in zip(self.weights, rows(), strict=True)}

    def begin(self) -> None:
        started = time.perf_counter()
        self._noted.clear()
        self._taped = None
        self._sums_before, self._rows_before = take_sums(self.weights, self.ranks)
        self._seconds = time.perf_counter() - started

    def note(self, values: TokenValues) -> None:
        started = time.perf_counter()
        rows = [values.logprobs, values.entropy, values.advantages]
        if values.reference_logprobs is not None:
            rows.append(values.reference_logprobs)
        self._noted.append(torch.stack([row.detach().double() for row in rows]))
        self._seconds += time.perf_counter() - started

    def end(self) -> None:
        """After the optimizer's step, or in place of it."""
        started = time.perf_counter()
        after, _ = take_sums(self.weights, self.ranks)
        rows = torch.cat(self._noted, dim=1).cpu()
        self._noted.clear()
        if self.ranks.rank > 0:
            for sending in self._transfers:
                sending.wait()
            sums = torch.from_numpy(np.stack([self._sums_before(), after()]))
            sent = [sums, rows] if rows.numel() else [sums]
            self._transfers = [Sending(start(dist.isend(item, dst=0)), item) for item in sent]
            return
        names = [name for name, _ in self.weights]
        values = [rows.numpy()]
        before_sums = [self._sums_before]
        after_sums = [after]
        works = []
        for rank in range(1, self.ranks.world_size):
            sums = torch.zeros(2, len(names), dtype=torch.int64)
            others_rows = torch.zeros(len(rows), self._num_loss_tokens(rank), dtype=rows.dtype)
            received = [sums, others_rows] if others_rows.numel() else [sums]
            works += [start(dist.irecv(item, src=rank)) for item in received]
            values.append(others_rows.numpy())
            # Replicas hold the same rows.
            if rank < self.ranks.num_shards:
                before_sums.append(partial(sums.numpy().__getitem__, 0))
                after_sums.append(partial(sums.numpy().__getitem__, 1))
        self._taped = TapedStep(
            self.plan,
            values,
            _digests(names, before_sums),
            _digests(names, after_sums),
            self._seconds + time.perf_counter() - started,
            partial(wait_for, works),
        )

    def _num_loss_tokens(self, rank: int) -> int:
        return sum(
            int(sequence.loss_mask.sum())
            for micro_batch in self.plan[rank]
            for sequence in micro_batch
        )

    def take(self) -> TapedStep | None:
        """Rank 0: the newest step; None if it did not finish."""
        taped = self._taped
        self._taped = None
        return taped


def _digests(names: list[str], sums: list[WeightSums]) -> Digests:
    """The checksums from what each rank adds."""

    def add_up() -> dict[str, str]:
        rows = [part().tolist() for part in sums]
        return {
            name: in_digits(sum(row[index] for row in rows)) for index, name in enumerate(names)
        }

    return add_up
