"""One step in memory, from its batch to the bundle that is written of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from rollcast.config.record import STEP_BOUNDS, Condition, StepRecording
from rollcast.recorded.step_bundle import RecordedSequence, StepBundle
from rollcast.rollouts.records import Logprobs, PromptTask, RolloutGroup
from rollcast.trainer.learner.batch import NUMBERS, MicroBatch, TrainingSequence
from rollcast.trainer.learner.loss_tape import TapedStep
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.learner.whole_weights import WholeWeights
from rollcast.wire.version import PolicyVersion

TeacherAnswers = Sequence[Sequence[Logprobs] | None]
"""Log-probs of each rollout's sequences; None if the teacher did not answer."""
TRAINED_FIELDS = (*NUMBERS, "loss_mask", "token_advantages")
"""Fields of a training sequence that its record has too, besides those of the rollout."""


@dataclass(eq=False)
class PendingStep:
    """A step under way, or one of the last."""

    version: PolicyVersion
    tasks: list[PromptTask]
    groups: list[RolloutGroup]
    sequences: Sequence[TrainingSequence]
    weights: WholeWeights | None
    """The weights before the step, until the thread has them; None = they are not kept."""
    teacher: Mapping[int, TeacherAnswers]
    """By task sequence, an endpoint's answers."""
    waited_seconds: float
    """How long the step waited for the recorder so far."""
    stats: UpdateStats | None = None
    taped: TapedStep | None = None
    at: float = field(default_factory=time.time)
    error: str = ""
    digests_before: dict[str, str] = field(default_factory=dict)
    digests_after: dict[str, str] = field(default_factory=dict)
    is_written: bool = False
    _completing: Lock = field(default_factory=Lock)

    @property
    def _plan(self) -> list[list[MicroBatch]]:
        """The micro-batches of each rank; one of an update that did not finish."""
        return [[tuple(self.sequences)]] if self.taped is None else self.taped.plan

    @property
    def step(self) -> int:
        """The step that it makes."""
        return self.version.step + 1

    @property
    def name(self) -> str:
        """Name of its folder. An update that made no step has one of its own, since another update
        will make that step.
        """
        if self.stats is None:
            return f"step-{self.step}-failed"
        return f"step-{self.step}" if self.stats.applied else f"step-{self.step}-skipped"

    @cached_property
    def num_bytes(self) -> int:
        """Memory of its arrays, nearly; asked once it is over."""
        arrays = [
            array
            for group in self.groups
            for rollout in group.rollouts
            for sequence in rollout.sequences
            for array in (sequence.token_ids, sequence.logprobs, sequence.routed_experts)
            if array is not None
        ]
        taped = [] if self.taped is None else self.taped.values
        return sum(array.nbytes for array in (*arrays, *taped))

    def complete(self) -> None:
        """Wait for the other ranks' values and compute checksums: the tape holds copies of the
        weights until then. Any thread may call it; another call does nothing.
        """
        with self._completing:
            if self.taped is not None and not self.digests_after:
                self.taped.wait()
                self.digests_before = self.taped.digests_before()
                self.digests_after = self.taped.digests_after()
                self.taped = replace(self.taped, digests_before=dict, digests_after=dict)

    def find_conditions(self, settings: StepRecording) -> dict[Condition, float]:
        """The conditions of `record.on` that its figures fulfil, with how far beyond the bound."""
        stats = self.stats
        if stats is None:
            return {}
        gap = stats.logprob_gap_mean / STEP_BOUNDS["gap"]
        share = STEP_BOUNDS["few_effective_samples"]
        few = share / stats.effective_sample_share if stats.effective_sample_share else math.inf
        excess: dict[Condition, float] = {
            "non_finite": 1.0 if stats.applied else math.inf,
            "gap": gap,
            "few_effective_samples": few,
        }
        # A gap that is not a number is as bad as can be.
        excess = {name: math.inf if math.isnan(value) else value for name, value in excess.items()}
        return {name: excess[name] for name in settings.on if excess.get(name, 0.0) > 1.0}

    def to_bundle(
        self, run: str, settings: dict[str, Any], conditions: tuple[str, ...], weights_kept: Any
    ) -> StepBundle:
        stats = self.stats
        return StepBundle(
            run=run,
            step=self.step,
            version=self.version,
            at=self.at,
            conditions=conditions,
            error=self.error,
            world_size=len(self._plan),
            waited_seconds=self.waited_seconds,
            settings=settings,
            figures={} if stats is None else asdict(stats),
            digests_before=self.digests_before,
            digests_after=self.digests_after,
            tasks=self.tasks,
            groups=self.groups,
            sequences=self._sequences(),
            teacher_logprobs={
                str(sequence): [None if item is None else list(item) for item in answers]
                for sequence, answers in self.teacher.items()
            },
            weights_kept=weights_kept,
        )

    def _sequences(self) -> list[RecordedSequence]:
        """The trained sequences, in the order in which the ranks computed them."""
        recorded = []
        for rank, micro_batches in enumerate(self._plan):
            start = 0
            for index, micro_batch in enumerate(micro_batches):
                for sequence in micro_batch:
                    end = start + int(sequence.loss_mask.sum())
                    values = {name: getattr(sequence, name) for name in TRAINED_FIELDS}
                    values |= self._loss_token_values(rank, start, end)
                    recorded.append(RecordedSequence(*sequence.origin, rank, index, **values))
                    start = end
        return recorded

    def _loss_token_values(self, rank: int, start: int, end: int) -> dict[str, Any]:
        """The values of the loss tokens [start, end) of a rank."""
        if self.taped is None:
            return {}
        rows = self.taped.values[rank][:, start:end]
        names = ("logprobs", "entropy", "trained_advantages", "reference_logprobs")
        return {
            name: row.astype(np.float64 if name == "trained_advantages" else np.float32)
            for name, row in zip(names, rows, strict=False)
        }
