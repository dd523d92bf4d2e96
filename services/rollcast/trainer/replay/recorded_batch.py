"""A recorded step as the trainer's own objects: settings, sequences, micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recorded.step_bundle import RecordedSequence, StepBundle
from rollcast.rollouts.records import Branch, Rollout, RolloutGroup, TokenIds, loss_mask
from rollcast.tasks.tokens import Tokenizer
from rollcast.trainer.learner.batch import NUMBERS, MicroBatch, TrainingSequence
from rollcast.trainer.replay.comparison import TokenLocation

NOT_TRUSTED = (
    "the record names code, which is not run because you did not record it in this folder; if you "
    "trust it, give --trust"
)


class SequenceKey(NamedTuple):
    """A sequence of the batch, by indices."""

    group: int
    rollout: int
    number: int
    """0 = the rollout's own tokens, n = branch n - 1 of its episode."""

    @classmethod
    def from_record(cls, recorded: RecordedSequence) -> SequenceKey:
        return cls(recorded.group, recorded.rollout, recorded.number)


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """A bundle, its settings, and the tokenizer for its texts."""

    bundle: StepBundle
    tokenizer: Tokenizer | None = None
    """None = the model's folder is not here: texts are not known."""
    group: int | None = None
    """Sequence of the only task whose group is compared; None = all are."""
    is_trusted: bool = True
    """Whether functions and model code that its settings name may run."""
    replayed_logprobs: dict[tuple[int, int, int, int], dict[str, float]] = field(
        default_factory=dict
    )
    """Log-probs of the group's tokens, by group, rollout, sequence and position, then by column."""

    @cached_property
    def config(self) -> RunConfig:
        """The run file as it was; of a record that is not trusted, without the model's code."""
        config = parse_run_config(self.bundle.settings, source=str(self.bundle.path))
        if self.is_trusted:
            return config
        model = config.model.model_copy(update={"trust_remote_code": False})
        return config.model_copy(update={"model": model})

    def check_trust(self, recipe: Recipe, *settings: str) -> None:
        """Raises UserError if one of a recipe's settings is a function that the record names, and
        the record is not trusted.
        """
        if self.is_trusted:
            return
        recorded = self.config.recipe.custom_functions
        for setting in settings:
            function = recipe.custom_functions.get(setting)
            # By name: with another digest it is still the function that the record names.
            if (
                function is not None
                and setting in recorded
                and function.function == recorded[setting].function
            ):
                raise UserError(f"{setting} {function.function}: {NOT_TRUSTED}")

    @property
    def missing_model(self) -> str:
        """Why the model's folder cannot be read; empty = it can."""
        if self.tokenizer is not None:
            return ""
        if not self.is_trusted and self.bundle.settings["model"].get("trust_remote_code"):
            return f"model.trust_remote_code: {NOT_TRUSTED}"
        return f"model.path = {self.config.model.path!r} is not on this machine"

    @property
    def groups(self) -> list[tuple[int, RolloutGroup]]:
        """The groups that are compared, with their indices."""
        return [
            (index, group)
            for index, group in enumerate(self.bundle.groups)
            if self.group in (None, group.sequence)
        ]

    def compared_sequences(self) -> Iterator[tuple[SequenceKey, Rollout | Branch]]:
        """The sequences of these groups, whether or not they were trained on."""
        for group_index, group in self.groups:
            for rollout_index, rollout in enumerate(group.rollouts):
                for number, sequence in enumerate(rollout.sequences):
                    yield SequenceKey(group_index, rollout_index, number), sequence

    @property
    def is_float32(self) -> bool:
        """Whether the run computed in float32: then its figures are found again to rounding."""
        return self.config.model.dtype == "float32"

    def rollout(self, key: SequenceKey) -> Rollout:
        return self.bundle.groups[key.group].rollouts[key.rollout]

    def prompt_and_sequence(self, key: SequenceKey) -> tuple[TokenIds, Rollout | Branch]:
        rollout = self.rollout(key)
        sequence = rollout.sequences[key.number]
        prompt = self.bundle.groups[key.group].prompt_token_ids
        return rollout.sequence_prompt(sequence, prompt), sequence

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

    def _training_sequence(self, recorded: RecordedSequence) -> TrainingSequence:
        key = SequenceKey.from_record(recorded)
        prompt, sequence = self.prompt_and_sequence(key)
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
            routed_experts=None if experts is None else experts[: len(prompt) + length - 1],
            token_advantages=recorded.token_advantages,
            origin=key,
            **{name: getattr(recorded, name) for name in NUMBERS},
        )

    def loss_token_values(self, name: str, micro_batch: MicroBatch) -> NDArray[Any] | None:
        """[T] recorded values of a micro-batch's loss tokens, such as `logprobs`; None if a
        sequence lacks them.
        """
        values = [
            getattr(self._sequence_records.get(sequence.origin), name, None)
            for sequence in micro_batch
        ]
        return None if any(row is None for row in values) else np.concatenate([*values, []])

    @cached_property
    def _sequence_records(self) -> Mapping[tuple[int, int, int], RecordedSequence]:
        return {SequenceKey.from_record(item): item for item in self.bundle.sequences}

    def locate(self, key: SequenceKey, token: int | None = None) -> TokenLocation:
        """With a token its text is shown."""
        text = ""
        if token is not None:
            text = self._token_in_text(self.rollout(key).sequences[key.number].token_ids, token)
        sequence = self.bundle.groups[key.group].sequence
        return TokenLocation(sequence, self.rollout(key).index, key.number, token, text)

    def _token_in_text(self, token_ids: TokenIds, token: int) -> str:
        """A token between guillemets, with up to 40 characters before and 20 after it."""
        slices = (token_ids[:token], token_ids[token : token + 1], token_ids[token + 1 :])
        texts = [self.decode(token_slice.tolist()) for token_slice in slices]
        return repr(
            f"{texts[0][-40:]}\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}{texts[1]}"
            f"\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}{texts[2][:20]}"
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        if self.tokenizer is None:
            return "".join(f"<{token}>" for token in token_ids)
        return self.tokenizer.decode(token_ids)
