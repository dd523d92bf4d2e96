"""A recorded step as the trainer's own objects: settings, sequences, micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recorded.step_bundle import RecordedSequence, StepBundle
from rollcast.rollouts.records import Branch, Rollout, RolloutGroup, TokenIds, loss_mask
from rollcast.tasks.tokens import Tokenizer
from rollcast.trainer.learner.batch import MicroBatch, TrainingSequence, denominator
from rollcast.trainer.replay.comparison import TokenPlace


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """A bundle, its settings, and the tokenizer for its texts."""

    bundle: StepBundle
    tokenizer: Tokenizer | None = None
    """None = the model's folder is not here: texts are not known."""
    group: int | None = None
    """Sequence of the task whose group is looked at; None = all."""
    token_columns: dict[tuple[int, int, int, int], dict[str, float]] = field(default_factory=dict)
    """Replayed log-probs of the group's tokens, by group, rollout, sequence and position."""

    @cached_property
    def config(self) -> RunConfig:
        """The run file as it was."""
        return parse_run_config(self.bundle.settings, source=str(self.bundle.path))

    @property
    def groups(self) -> list[tuple[int, RolloutGroup]]:
        """The groups that are looked at, with their indices."""
        return [
            (index, group)
            for index, group in enumerate(self.bundle.groups)
            if self.group in (None, group.sequence)
        ]

    @property
    def is_float32(self) -> bool:
        """Whether the run computed in float32: then its figures are found again to rounding."""
        return self.config.model.dtype == "float32"

    def prompt_and_sequence(self, recorded: RecordedSequence) -> tuple[TokenIds, Rollout | Branch]:
        """The prompt of a trained sequence, and the sequence."""
        group = self.bundle.groups[recorded.group]
        rollout = group.rollouts[recorded.rollout]
        sequence = rollout.sequences[recorded.number]
        return rollout.sequence_prompt(sequence, group.prompt_token_ids), sequence

    @cached_property
    def sequences(self) -> list[TrainingSequence]:
        """The bundle's sequences in order, as they were trained on."""
        return [self._training_sequence(recorded) for recorded in self.bundle.sequences]

    @property
    def micro_batches(self) -> list[MicroBatch]:
        """The micro-batches of all ranks, one rank after the other."""
        pairs = zip(self.bundle.sequences, self.sequences, strict=True)
        grouped = groupby(pairs, key=lambda pair: (pair[0].rank, pair[0].micro_batch))
        return [tuple(sequence for _, sequence in pairs) for _, pairs in grouped]

    @property
    def denominator(self) -> float:
        return denominator(self.sequences)

    def _training_sequence(self, recorded: RecordedSequence) -> TrainingSequence:
        prompt, sequence = self.prompt_and_sequence(recorded)
        length = len(recorded.loss_mask)
        mask = recorded.loss_mask
        if recorded.logprobs is not None and mask.sum() != len(recorded.logprobs):
            # The record's mask is not the one that was trained with; the rollout's may be.
            mask = loss_mask(sequence)[:length]
            if mask.sum() != len(recorded.logprobs):
                raise UserError(
                    f"{self.bundle.path}: is damaged: {len(recorded.logprobs)} log-probs of a "
                    f"sequence with {mask.sum()} loss tokens; choose another step"
                )
        experts = sequence.routed_experts
        return TrainingSequence(
            prompt_token_ids=prompt,
            token_ids=sequence.token_ids[:length],
            generator_logprobs=sequence.logprobs[:length],
            loss_mask=mask,
            advantage=recorded.advantage,
            weight=recorded.weight,
            kl_factor=recorded.kl_factor,
            entropy_factor=recorded.entropy_factor,
            routed_experts=None if experts is None else experts[: len(prompt) + length - 1],
            token_advantages=recorded.token_advantages,
            origin=(recorded.group, recorded.rollout, recorded.number),
        )

    def values(self, name: str, micro_batch: MicroBatch) -> NDArray[Any] | None:
        """[T] recorded values of a micro-batch's loss tokens, such as `logprobs`; None if a
        sequence lacks them.
        """
        parts = [
            getattr(self._sequence_records[sequence.origin], name, None)
            if sequence.origin in self._sequence_records
            else None
            for sequence in micro_batch
        ]
        return None if any(part is None for part in parts) else np.concatenate([*parts, []])

    @cached_property
    def _sequence_records(self) -> Mapping[tuple[int, int, int], RecordedSequence]:
        return {(item.group, item.rollout, item.number): item for item in self.bundle.sequences}

    def place(
        self, group: int, rollout: int, number: int = 0, token: int | None = None
    ) -> TokenPlace:
        """`group`, `rollout`: indices. With a token its text is shown."""
        recorded_group = self.bundle.groups[group]
        recorded_rollout = recorded_group.rollouts[rollout]
        text = ""
        if token is not None:
            text = self.token_in_text(recorded_rollout.sequences[number].token_ids, token)
        return TokenPlace(recorded_group.sequence, recorded_rollout.index, number, token, text)

    def token_in_text(self, token_ids: TokenIds, token: int) -> str:
        """A token between guillemets, with up to 40 characters before and 20 after it."""
        parts = (token_ids[:token], token_ids[token : token + 1], token_ids[token + 1 :])
        before, itself, after = (self.text(part.tolist()) for part in parts)
        return repr(
            f"{before[-40:]}\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}{itself}"
            f"\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}{after[:20]}"
        )

    def text(self, token_ids: Sequence[int]) -> str:
        if self.tokenizer is None:
            return "".join(f"<{token}>" for token in token_ids)
        return self.tokenizer.decode(token_ids)
