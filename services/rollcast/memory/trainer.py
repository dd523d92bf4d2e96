"""What a rank of the learner holds, moment by moment of a step; the fullest moment decides.

    W ranks; d bytes of a number in the forward pass; 4 of a master weight, of a gradient, of each AdamW moment

FSDP2 cuts every weight by rows into W parts of ceil(rows / W) and stores weights and gradients padded to that. For its
turn a unit (a decoder layer, an untied head, and the root with everything else, which stays from forward to backward)
is gathered whole in the forward pass's dtype. Backward gathers the unit before it ahead of time, and keeps what goes
into the reduction of the unit after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rollcast.config.run import RunConfig
from rollcast.memory.activations import (
    WIDE,
    Load,
    kept_around_layers,
    kept_by_input,
    kept_by_layer,
    passing_through_layer,
)
from rollcast.memory.architecture import ModelShape, Shape
from rollcast.memory.device import DeviceKind
from rollcast.memory.staging import staged_by_trainer
from rollcast.weights.plan.manifest import DTYPE_BYTES, PIECE_BYTES

Parts = dict[str, int]
"""Bytes by what they hold."""


@dataclass(frozen=True, slots=True)
class StepMoment:
    """One moment of a step on one rank."""

    name: str
    parts: Parts

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def rows_of_rank(rows: int, rank: int, ranks: int) -> int:
    """As torch.chunk cuts them."""
    chunk = -(-rows // ranks)
    return max(0, min(chunk, rows - rank * chunk))


def sharded(weights: Iterable[tuple[str, Shape]], rank: int, ranks: int) -> int:
    """Numbers of these weights that a rank holds."""
    return sum(rows_of_rank(shape[0], rank, ranks) * math.prod(shape[1:]) for _, shape in weights)


@dataclass(frozen=True)
class RankMemory:
    """Counts one rank of a run's learner."""

    model: ModelShape
    config: RunConfig
    kind: DeviceKind
    rank: int
    ranks: int

    @cached_property
    def load(self) -> Load:
        """The largest micro-batch: a sequence longer than trainer.tokens_per_micro_batch is one by itself."""
        recipe = self.config.recipe
        longest = min(recipe.max_prompt_tokens + recipe.max_completion_tokens, self.config.model.max_length)
        tokens = max(self.config.trainer.tokens_per_micro_batch, longest)
        return Load(tokens, longest, DTYPE_BYTES[self.config.model.dtype])

    def moments(self) -> Iterator[StepMoment]:
        """Of a step with several micro-batches: gradients of the first are there when the others are computed."""
        yield from (self._with_standing(name, parts) for name, parts in self._passes())
        yield self._with_standing("publish", {"converted": self._converted()}, gradients=False)
        yield self._with_standing("checkpoint", self._while_written, gradients=False)

    @cached_property
    def fullest(self) -> StepMoment:
        """With what a checkpoint that is still being written holds beside it."""
        moment = max(self.moments(), key=lambda moment: moment.total)
        return replace(moment, parts=_together(moment.parts, self._while_written))

    @property
    def _while_written(self) -> Parts:
        return {"checkpoint": self.unpadded} if self.kind == "cpu" and self.unpadded else {}

    @property
    def start_on_host(self) -> int:
        """Bytes of host memory while the model is read: one weight at a time, as it is stored.

        Without a GPU all rows of this rank end in host memory, where float32 ones stay as they were read, and experts
        are stacked, beside what they are stacked of. Rows that need padding then move, one weight after the other.
        """
        in_hand = self.model.stored_item * max(self._read_at_once(*weight) for weight in self.model.weights())
        if self.kind == "gpu":
            return in_hand
        weights = list(self.model.weights())
        stacks = [sharded([weight], self.rank, self.ranks) for weight in weights if self._is_stacked(weight[0])]
        beyond = max(0 if self.model.stored_item == WIDE else in_hand, WIDE * max(stacks, default=0))
        held = WIDE * sharded(weights, self.rank, self.ranks)
        most = held + beyond
        for weight in weights:
            rows, padded = (WIDE * sharded([weight], rank, self.ranks) for rank in (self.rank, 0))
            if rows < padded:
                most = max(most, held + padded)
                held += padded - rows
        return most

    def _is_stacked(self, name: str) -> bool:
        return self.model.family.stacked and ".experts." in name

    def _read_at_once(self, name: str, shape: Shape) -> int:
        """Numbers of a weight that pass together; experts that are stored one by one come one by one."""
        return math.prod(shape[1:]) if self._is_stacked(name) else sharded([(name, shape)], 0, self.ranks)

    @cached_property
    def version(self) -> int:
        """Bytes of one published version."""
        return self.model.num_parameters * self.load.item

    @cached_property
    def _standing(self) -> Parts:
        """What a rank holds at any moment of any step but the first."""
        weights = list(self.model.weights())
        padded = sharded(weights, 0, self.ranks)
        parts = {
            "weights": WIDE * padded,
            "gradients": WIDE * padded,
            "optimizer": 2 * WIDE * sharded(weights, self.rank, self.ranks),
        }
        if self.config.recipe.kl is not None:
            parts["reference"] = self.load.item * padded
        if self.kind == "cpu":
            parts["checkpoint"] = self.checkpoint
        parts["staging"] = staged_by_trainer(self.version_rows, self.kind)
        return parts

    @cached_property
    def version_rows(self) -> int:
        """Bytes of this rank's rows of one published version."""
        return self.load.item * sharded(self.model.weights(), self.rank, self.ranks)

    @cached_property
    def checkpoint(self) -> int:
        """Bytes of the copy of weights and moments in host memory that a checkpoint is written from; it is kept."""
        weights = list(self.model.weights())
        return WIDE * sharded(weights, 0, self.ranks) + 2 * WIDE * sharded(weights, self.rank, self.ranks)

    @property
    def unpadded(self) -> int:
        """Bytes of one more copy of the weights that have padding here: torch writes them to a checkpoint without."""
        rows = {shape[0] for _, shape in self.model.weights()}
        padded = {n for n in rows if rows_of_rank(n, self.rank, self.ranks) < rows_of_rank(n, 0, self.ranks)}
        return WIDE * sharded((w for w in self.model.weights() if w[1][0] in padded), self.rank, self.ranks)

    @property
    def largest_weight(self) -> int:
        """Bytes of the largest weight, whole and in the published dtype: an export gathers one after the other."""
        return self.load.item * max(math.prod(shape) for _, shape in self.model.weights())

    def _with_standing(self, name: str, parts: Mapping[str, int], *, gradients: bool = True) -> StepMoment:
        standing = {part: size for part, size in self._standing.items() if gradients or part != "gradients"}
        return StepMoment(name, _together(standing, parts))

    def _passes(self) -> Iterator[tuple[str, Parts]]:
        kept = list(self._kept())
        yield from self._head(sum(kept) + kept_around_layers(self.model, self.load))
        for index in reversed(range(len(kept))):
            yield from self._layer(index, sum(kept[:index]))
        yield from self._embedding()

    def _kept(self) -> Iterator[int]:
        for layer in self.model.layers:
            if self.config.trainer.activation_checkpointing:
                yield kept_by_input(self.model, self.load)
            else:
                yield kept_by_layer(self.model, layer, self.load)

    def _head(self, activations: int) -> Iterator[tuple[str, Parts]]:
        """The chunked head (`rollcast.trainer.learner.head`), forward and backward."""
        d, head = self.load.item, self.model.vocabulary * self.model.hidden
        chunk = min(self.config.trainer.logits_chunk_tokens, self.load.tokens) * self.model.vocabulary
        fused = self.kind == "gpu" and self.config.recipe.lm_head == "fp32"
        product = d if self.config.recipe.lm_head == "model" else WIDE
        narrow = d if fused else product
        widened = 0 if narrow == d else narrow * (head + self.load.tokens * self.model.hidden)
        unit = 0 if self.model.tied else head
        gathered = d * (_gathered(self.model.root, self.ranks) + unit)
        # Logits, probabilities of the chunk before, and what is computed from them.
        forward = 3 * WIDE * chunk + (product * chunk if product != WIDE else 0)
        ahead = self._in_flight(unit) if unit else self._gathered_ahead(len(self.model.layers) - 1)
        yield (
            "head, forward",
            {
                "gathered": gathered + ahead,
                "activations": activations,
                "logits": forward + widened,
            },
        )
        # Logits of this chunk and of the one before; the gradient's sum, and what this chunk adds to it.
        backward = 2 * WIDE * chunk + (narrow * chunk if narrow != WIDE else 0)
        sums = head * (WIDE + (WIDE if fused else narrow))
        ahead = self._gathered_ahead(len(self.model.layers) - 1)
        yield (
            "head, backward",
            {
                "gathered": gathered + ahead,
                "activations": activations + d * self.load.tokens * self.model.hidden,
                "logits": backward + widened,
                "gradients": sums,
            },
        )
        if unit:
            yield (
                "head, reduced",
                {
                    "gathered": gathered - d * unit + ahead,
                    "activations": activations,
                    "gradients": self._reduced(self.model.head),
                },
            )

    def _layer(self, index: int, before: int) -> Iterator[tuple[str, Parts]]:
        """Backward of one layer; `before`: what the layers below keep."""
        model, d, layer = self.model, self.load.item, self.model.layers[index]
        root = d * _gathered(model.root, self.ranks)
        own = d * _gathered(layer.weights, self.ranks)
        ahead = self._gathered_ahead(index - 1) if index else 0
        whole = kept_by_layer(model, layer, self.load)
        if self.config.trainer.activation_checkpointing:
            whole += kept_by_input(model, self.load)
        above = model.layers[index + 1].weights if index + 1 < len(model.layers) else model.head
        yield (
            f"layer {index}, backward",
            {
                "gathered": root + own + ahead,
                "activations": before + whole + passing_through_layer(model, layer, self.load),
                "gradients": self._held_head() + WIDE * _gathered(above, self.ranks),
            },
        )
        yield (
            f"layer {index}, reduced",
            {
                "gathered": root + ahead,
                "activations": before + kept_by_input(model, self.load),
                "gradients": self._held_head() + self._reduced(layer.weights),
            },
        )

    def _embedding(self) -> Iterator[tuple[str, Parts]]:
        d, root = self.load.item, self.model.root
        yield (
            "embeddings, backward",
            {
                "gathered": d * _gathered(root, self.ranks),
                "gradients": self._held_head()
                + d * _gathered(root, 1)
                + WIDE * _gathered(self.model.layers[0].weights, self.ranks),
            },
        )
        yield "embeddings, reduced", {"gradients": self._reduced(root)}

    def _held_head(self) -> int:
        """The gradient that a tied head leaves waits for that of the embeddings."""
        return self.load.item * self.model.vocabulary * self.model.hidden if self.model.tied else 0

    def _reduced(self, weights: Mapping[str, Shape]) -> int:
        """A unit's gradients as they were computed, what goes into their reduction, and what comes out."""
        padded = _gathered(weights, self.ranks)
        return self.load.item * _gathered(weights, 1) + WIDE * padded + WIDE * padded // self.ranks

    def _gathered_ahead(self, index: int) -> int:
        return self._in_flight(_gathered(self.model.layers[index].weights, self.ranks))

    def _in_flight(self, numbers: int) -> int:
        """What a unit's shards are gathered into; a single rank gathers nothing."""
        return self.load.item * numbers if self.ranks > 1 else 0

    @property
    def _largest_rows(self) -> int:
        """Numbers of the largest weight that this rank holds."""
        return max(sharded([weight], 0, self.ranks) for weight in self.model.weights())

    def _converted(self) -> int:
        """A piece of one weight's rows in the published dtype, before it is copied to the host."""
        return 0 if self.load.item == WIDE else min(PIECE_BYTES, self.load.item * self._largest_rows)


def _together(parts: Mapping[str, int], more: Mapping[str, int]) -> Parts:
    return {**parts, **{part: parts.get(part, 0) + size for part, size in more.items()}}


def _gathered(weights: Mapping[str, Shape], ranks: int) -> int:
    """Numbers of a unit, each weight padded to equal shards."""
    return ranks * sharded(weights.items(), 0, ranks)
