"""The memory of one rank of the learner at every moment of a step. The fullest moment decides.

    W ranks; d bytes of a number in the forward pass;
    4 of a master weight, of a gradient, of each AdamW moment

FSDP2 cuts every weight by rows into W parts of ceil(rows / W) and stores weights and gradients
padded to that. A unit is a decoder layer, an untied head, or the root with everything else. For its
turn it is gathered whole in the forward pass's dtype; the root stays from forward to backward.
Backward gathers the unit before it ahead of time, and keeps the input of the reduction of the unit
after it.

With model.lora the weights are frozen, in the forward pass's dtype and without gradients. Masters,
gradients, moments, versions and checkpoints are those of the adapters.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rollcast.config.run import RunConfig
from rollcast.memory.activations import (
    Load,
    kept_around_layers,
    kept_by_input,
    kept_by_layer,
    kept_by_selection,
    passing_through_layer,
)
from rollcast.memory.adapters import (
    adapter_shapes,
    all_adapters,
    kept_for_adapters,
    passing_for_adapters,
)
from rollcast.memory.architecture import LayerShape, ModelShape, Shape
from rollcast.memory.device import DeviceKind, gigabytes
from rollcast.memory.model_reading import host_bytes_while_read
from rollcast.memory.recurrence import FLOAT32_BYTES
from rollcast.memory.shards import count_gathered, count_rank_numbers, rows_of_rank
from rollcast.memory.staging import staged_by_trainer
from rollcast.weights.plan.manifest import DTYPE_BYTES, PIECE_BYTES

Parts = dict[str, int]
"""Name of a use of memory -> bytes."""


@dataclass(frozen=True, slots=True)
class StepMoment:
    """One moment of a step on one rank."""

    name: str
    parts: Parts

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class RankMemory:
    """Counts the memory of one rank of a run's learner."""

    model: ModelShape
    config: RunConfig
    kind: DeviceKind
    rank: int
    """Index of the rank's shard of the weights."""
    ranks: int
    """Ranks that share one copy of the weights."""
    teacher: ModelShape | None = None
    """The teacher that the ranks hold; None = none, or its shape is not known."""

    @cached_property
    def load(self) -> Load:
        """The largest micro-batch: a sequence longer than trainer.tokens_per_micro_batch is one by
        itself.
        """
        recipe = self.config.recipe
        longest = min(
            recipe.max_prompt_tokens + recipe.max_completion_tokens, self.config.model.max_length
        )
        tokens = max(self.config.trainer.tokens_per_micro_batch, longest)
        model = self.config.model
        return Load(tokens, longest, DTYPE_BYTES[model.dtype], frozen=model.lora is not None)

    @cached_property
    def trained_weights(self) -> list[tuple[str, Shape]]:
        """The weights with masters, moments and gradients: all, or those of the adapters."""
        lora = self.config.model.lora
        return list(self.model.weights() if lora is None else all_adapters(self.model, lora))

    def _select_trained(self, weights: Mapping[str, Shape]) -> Mapping[str, Shape]:
        """The trained weights of a unit with these weights."""
        lora = self.config.model.lora
        return weights if lora is None else adapter_shapes(weights, lora)

    def _unit(self, weights: Mapping[str, Shape]) -> int:
        """How many numbers a gathered unit with these weights has."""
        lora = self.config.model.lora
        more = 0 if lora is None else count_gathered(adapter_shapes(weights, lora), self.ranks)
        return count_gathered(weights, self.ranks) + more

    @property
    def _read_item(self) -> int:
        """Bytes of a number of the model's own weights on this rank."""
        return FLOAT32_BYTES if self.config.model.lora is None else self.load.item

    def moments(self) -> Iterator[StepMoment]:
        """The moments of a step with several micro-batches: gradients of the first are there during
        the others.
        """
        yield from (self._with_constant_parts(name, parts) for name, parts in self._passes())
        yield self._with_constant_parts(
            "publish", {"converted": self._conversion_bytes()}, gradients=False
        )
        yield self._with_constant_parts("checkpoint", self._while_written, gradients=False)

    @cached_property
    def fullest(self) -> StepMoment:
        """The fullest moment, while a checkpoint is still being written."""
        moment = max(self.moments(), key=lambda moment: moment.total)
        return replace(moment, parts=together(moment.parts, self._while_written))

    @property
    def _while_written(self) -> Parts:
        return {"checkpoint": self.unpadded} if self.kind == "cpu" and self.unpadded else {}

    @property
    def start_on_host(self) -> int:
        """Bytes of host memory while the model is read."""
        return host_bytes_while_read(
            self.model, self.kind, rank=self.rank, ranks=self.ranks, item=self._read_item
        )

    @cached_property
    def version(self) -> int:
        """Bytes of one published version."""
        return sum(math.prod(shape) for _, shape in self.trained_weights) * self.load.item

    @cached_property
    def _constant_parts(self) -> Parts:
        """Memory that a rank holds at every moment of a step.

        The first step has no moments of AdamW yet.
        """
        padded = count_rank_numbers(self.trained_weights, 0, self.ranks)
        model_bytes = self.load.item * count_rank_numbers(self.model.weights(), 0, self.ranks)
        has_adapters = self.config.model.lora is not None
        parts = {
            "weights": FLOAT32_BYTES * padded + (model_bytes if has_adapters else 0),
            "gradients": FLOAT32_BYTES * padded,
            "optimizer": 2
            * FLOAT32_BYTES
            * count_rank_numbers(self.trained_weights, self.rank, self.ranks),
        }
        kl = self.config.recipe.kl
        # With adapters the model itself is its own reference.
        if kl is not None and not (has_adapters and kl.reference in (None, self.config.model.path)):
            parts["reference"] = model_bytes
        if self.teacher is not None:
            parts["teacher"] = self.load.item * count_rank_numbers(
                self.teacher.weights(), 0, self.ranks
            )
        if self.kind == "cpu":
            parts["checkpoint"] = self.checkpoint
        parts["staging"] = staged_by_trainer(
            self.config.weights.versions_of_trainer * self.version_rows, self.kind
        )
        return parts

    @cached_property
    def version_rows(self) -> int:
        """Bytes of one published version's rows on this rank."""
        return self.load.item * count_rank_numbers(self.trained_weights, self.rank, self.ranks)

    @cached_property
    def checkpoint(self) -> int:
        """Bytes of the host copy of weights and moments that a checkpoint is written from.

        The copy is kept.
        """
        moments = (
            2 * FLOAT32_BYTES * count_rank_numbers(self.trained_weights, self.rank, self.ranks)
        )
        return FLOAT32_BYTES * count_rank_numbers(self.trained_weights, 0, self.ranks) + moments

    @property
    def unpadded(self) -> int:
        """Bytes of one more copy of the weights that are padded here: torch writes a checkpoint
        without padding.
        """
        rows = {shape[0] for _, shape in self.trained_weights}
        padded = {
            n
            for n in rows
            if rows_of_rank(n, self.rank, self.ranks) < rows_of_rank(n, 0, self.ranks)
        }
        return FLOAT32_BYTES * count_rank_numbers(
            (w for w in self.trained_weights if w[1][0] in padded), self.rank, self.ranks
        )

    @property
    def largest_weight(self) -> int:
        """Bytes of the largest whole weight in the published dtype: an export gathers one weight at
        a time.
        """
        return self.load.item * max(
            (math.prod(shape) for _, shape in self.trained_weights), default=0
        )

    def _with_constant_parts(
        self, name: str, parts: Mapping[str, int], *, gradients: bool = True
    ) -> StepMoment:
        constant = {
            part_name: size
            for part_name, size in self._constant_parts.items()
            if gradients or part_name != "gradients"
        }
        return StepMoment(name, together(constant, parts))

    def _passes(self) -> Iterator[tuple[str, Parts]]:
        kept_bytes = list(self._kept_bytes())
        yield from self._head(sum(kept_bytes) + kept_around_layers(self.model, self.load))
        for index in reversed(range(len(kept_bytes))):
            yield from self._layer(index, sum(kept_bytes[:index]))
        yield from self._embedding()

    def _kept_bytes(self) -> Iterator[int]:
        for layer in self.model.layers:
            match self.config.trainer.activation_checkpointing:
                case False:
                    yield self._kept_by(layer)
                case "selective":
                    yield kept_by_selection(self.model, layer, self.load) + self._kept_by_adapters(
                        layer
                    )
                case _:
                    yield kept_by_input(self.model, self.load)

    def _kept_by(self, layer: LayerShape) -> int:
        return kept_by_layer(self.model, layer, self.load) + self._kept_by_adapters(layer)

    def _kept_by_adapters(self, layer: LayerShape) -> int:
        lora = self.config.model.lora
        return (
            0
            if lora is None
            else kept_for_adapters(layer.weights, lora, self.load.tokens, self.load.item)
        )

    def _passing_through(self, layer: LayerShape) -> int:
        lora = self.config.model.lora
        adapters = (
            0
            if lora is None
            else passing_for_adapters(layer.weights, lora, self.load.tokens, self.load.item)
        )
        return passing_through_layer(self.model, layer, self.load) + adapters

    def _head(self, activations: int) -> Iterator[tuple[str, Parts]]:
        """The chunked head (`rollcast.trainer.learner.head`), forward and backward."""
        d = self.load.item
        head = self.model.vocabulary * self.model.hidden
        chunk = (
            min(self.config.trainer.logits_chunk_tokens, self.load.tokens) * self.model.vocabulary
        )
        fused = self.kind == "gpu" and self.config.recipe.lm_head == "fp32"
        product = d if self.config.recipe.lm_head == "model" else FLOAT32_BYTES
        narrow = d if fused else product
        widened = 0 if narrow == d else narrow * (head + self.load.tokens * self.model.hidden)
        unit = 0 if self.model.tied else head
        gathered = d * (count_gathered(self.model.root, self.ranks) + unit)
        # Logits, the probabilities of the chunk before, and the results computed from them.
        forward = 3 * FLOAT32_BYTES * chunk + (product * chunk if product != FLOAT32_BYTES else 0)
        ahead = self._in_flight(unit) if unit else self._gathered_ahead(len(self.model.layers) - 1)
        parts = {
            "gathered": gathered + ahead,
            "activations": activations,
            "logits": forward + widened,
        }
        yield "head, forward", parts
        # Logits of this chunk and of the one before. `sums`: the gradient so far, and the part that
        # this chunk adds.
        backward = 2 * FLOAT32_BYTES * chunk + (narrow * chunk if narrow != FLOAT32_BYTES else 0)
        sums = (
            head * (FLOAT32_BYTES + (FLOAT32_BYTES if fused else narrow))
            if self._select_trained(self.model.root)
            else 0
        )
        ahead = self._gathered_ahead(len(self.model.layers) - 1)
        of_inputs = d * self.load.tokens * self.model.hidden
        parts = {
            "gathered": gathered + ahead,
            "activations": activations + of_inputs,
            "logits": backward + widened,
        }
        yield "head, backward", {**parts, "gradients": sums}
        if unit and self._select_trained(self.model.head):
            parts = {"gathered": gathered - d * unit + ahead, "activations": activations}
            yield "head, reduced", {**parts, "gradients": self._reduction_bytes(self.model.head)}

    def _layer(self, index: int, lower_layer_bytes: int) -> Iterator[tuple[str, Parts]]:
        """Backward pass of one layer. `lower_layer_bytes`: bytes that the layers below keep."""
        model = self.model
        d = self.load.item
        layer = self.model.layers[index]
        gathered = d * count_gathered(model.root, self.ranks) + (
            self._gathered_ahead(index - 1) if index else 0
        )
        layer_bytes = self._kept_by(layer)
        if self.config.trainer.activation_checkpointing:
            layer_bytes += kept_by_input(model, self.load)
        if self.config.trainer.activation_checkpointing == "selective":
            # The result of the last product, which nothing reads again
            layer_bytes += kept_by_input(model, self.load)
        above = model.layers[index + 1].weights if index + 1 < len(model.layers) else model.head
        backward = {
            "gathered": gathered + d * self._unit(layer.weights),
            "activations": lower_layer_bytes + layer_bytes + self._passing_through(layer),
            "gradients": self._held_head()
            + FLOAT32_BYTES * count_gathered(self._select_trained(above), self.ranks),
        }
        yield f"layer {index}, backward", backward
        reduced = {
            "gathered": gathered,
            "activations": lower_layer_bytes + kept_by_input(model, self.load),
            "gradients": self._held_head()
            + self._reduction_bytes(self._select_trained(layer.weights)),
        }
        yield f"layer {index}, reduced", reduced

    def _embedding(self) -> Iterator[tuple[str, Parts]]:
        if not self._select_trained(self.model.root):
            return
        d = self.load.item
        root = self.model.root
        above = FLOAT32_BYTES * count_gathered(self.model.layers[0].weights, self.ranks)
        gradients = self._held_head() + d * count_gathered(root, 1) + above
        yield (
            "embeddings, backward",
            {"gathered": d * count_gathered(root, self.ranks), "gradients": gradients},
        )
        yield "embeddings, reduced", {"gradients": self._reduction_bytes(root)}

    def _held_head(self) -> int:
        """Bytes of a tied head's gradient, which is kept until that
        of the embeddings is computed.
        """
        is_held = self.model.tied and self._select_trained(self.model.root)
        return self.load.item * self.model.vocabulary * self.model.hidden if is_held else 0

    def _reduction_bytes(self, weights: Mapping[str, Shape]) -> int:
        """Bytes of a unit's computed gradients, of the input of their reduction, and
        of its output.
        """
        padded = count_gathered(weights, self.ranks)
        return (
            self.load.item * count_gathered(weights, 1)
            + FLOAT32_BYTES * padded
            + FLOAT32_BYTES * padded // self.ranks
        )

    def _gathered_ahead(self, index: int) -> int:
        return self._in_flight(self._unit(self.model.layers[index].weights))

    def _in_flight(self, numbers: int) -> int:
        """Bytes into which a unit's shards are gathered. A single rank gathers nothing."""
        return self.load.item * numbers if self.ranks > 1 else 0

    def _conversion_bytes(self) -> int:
        """Bytes of one piece of a weight's rows in the published dtype, before it is copied to the
        host.
        """
        if self.load.item == FLOAT32_BYTES:
            return 0
        largest_rows = max(
            (count_rank_numbers([weight], 0, self.ranks) for weight in self.trained_weights),
            default=0,
        )
        return min(PIECE_BYTES, self.load.item * largest_rows)


def largest_in_words(parts: Parts) -> str:
    """The three largest, for a sentence."""
    largest = sorted(parts.items(), key=lambda named_size: -named_size[1])[:3]
    return ", ".join(f"{name} {gigabytes(size)}" for name, size in largest)


def together(parts: Mapping[str, int], more: Mapping[str, int]) -> Parts:
    return {**parts, **{name: parts.get(name, 0) + size for name, size in more.items()}}
