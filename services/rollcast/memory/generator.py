"""The memory of one worker of a generator, and how much of it is left for KV cache.

vLLM takes the share generator.gpu_memory_utilization of the GPU: weights, one forward pass of its
largest batch, and KV cache with all the rest. Arriving versions are staged in the GPU's remaining
memory, or in host memory.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from rollcast.config.bounds import MOST_DERIVED_SLOTS
from rollcast.config.run import RunConfig
from rollcast.memory.adapters import all_adapters
from rollcast.memory.architecture import FeedForwardShape, LayerShape, ModelShape, Shape
from rollcast.memory.device import DeviceKind
from rollcast.memory.recurrence import FLOAT32_BYTES
from rollcast.memory.staging import StagingPlace, staged_by_generator, staging_place
from rollcast.weights.plan.manifest import DTYPE_BYTES

BLOCK_TOKENS = {"gpu": 16, "cpu": 128}
"""Tokens of vLLM's KV blocks if generator.block_size is not set."""
SAMPLER_BYTES_PER_LOGIT = 7 * FLOAT32_BYTES
"""Bytes in vLLM's trial run of the sampler with every slot: logits, log-probs, probabilities, the
sorted ones with their positions (8 bytes), and sums."""
SPLIT_BY_INPUT = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
"""Projections that tensor parallelism cuts by columns."""


@dataclass(frozen=True)
class WorkerMemory:
    """Counts the memory of one worker. All workers of a generator are alike."""

    model: ModelShape
    config: RunConfig
    kind: DeviceKind
    device_bytes: int
    """Memory of the GPU; not used on a CPU."""

    @property
    def workers(self) -> int:
        return self.config.generator.tensor_parallel

    @property
    def item(self) -> int:
        return DTYPE_BYTES[self.config.model.dtype]

    @property
    def kv_item(self) -> int:
        return self.item if self.config.generator.engine.kv_cache_dtype is None else 1

    @property
    def batched_tokens(self) -> int:
        # vLLM's max_num_batched_tokens in an engine that Rollcast starts, unless generator.engine
        # sets another
        return self.config.generator.engine.max_num_batched_tokens or 2_048

    @property
    def slots(self) -> int:
        """Concurrent rollouts: generator.slots, or as many as the engine will find that its KV
        cache holds.
        """
        if (configured_slots := self.config.generator.slots) is not None:
            return configured_slots
        group = max(
            self.config.recipe.most_rollouts_per_prompt, self.config.tasks.most_evaluation_rollouts
        )
        return max(group, min(self.slots_that_fit, MOST_DERIVED_SLOTS))

    @cached_property
    def weights(self) -> int:
        layers = sum(
            _count_worker_numbers(name, shape, layer.attention.head_size, self.workers)
            * self._bytes_per_number(name)
            for layer in self.model.layers
            for name, shape in layer.weights.items()
        )
        # vLLM pads the rows of embeddings and head to a multiple of this.
        vocabulary_multiple = 64
        rows = -(-self.model.vocabulary // vocabulary_multiple) * vocabulary_multiple
        tables = -(-rows // self.workers) * self.model.hidden * (1 if self.model.tied else 2)
        return layers + self.item * (tables + self.model.hidden) + self._adapters

    @property
    def _adapters(self) -> int:
        """Bytes of the adapter of model.lora: vLLM's room for it, of which tensor parallelism cuts
        only a part, and the received one, which vLLM keeps."""
        lora = self.config.model.lora
        if lora is None:
            return 0
        room = lora.model_copy(update={"rank": lora.engine_rank})
        return sum(
            self.item * math.prod(shape)
            for adapter in (room, lora)
            for _, shape in all_adapters(self.model, adapter)
        )

    def _bytes_per_number(self, name: str) -> int:
        """Quantisation covers the projections of attention and feed-forward, not embeddings, head
        and norms.
        """
        quantised = self.config.generator.engine.quantization is not None and name.endswith(
            "_proj.weight"
        )
        return 1 if quantised else self.item

    @cached_property
    def activations(self) -> int:
        """The larger of vLLM's largest batch and its sampler with every slot taken."""
        slots = self.config.generator.most_slots
        length = self.config.model.max_length
        tokens = min(self.batched_tokens, slots * length)
        widest = max(_widest(layer, self.workers) for layer in self.model.layers)
        body = tokens * self.item * (3 * self.model.hidden + widest)
        return max(body, min(slots, tokens) * self.model.vocabulary * SAMPLER_BYTES_PER_LOGIT)

    @cached_property
    def place(self) -> StagingPlace:
        """Where versions are staged.

        `auto` is decided as the engine will, by the memory that vLLM leaves.
        """
        free = None if self.kind == "cpu" else self.device_bytes - self.taken_by_engine
        held_bytes = self.weights if self.config.model.lora is None else self._adapters
        return staging_place(self.config.weights.staging, [(free, held_bytes)] * self.workers)

    @cached_property
    def staging(self) -> int:
        lora = self.config.model.lora
        weights = self.model.weights() if lora is None else all_adapters(self.model, lora)
        version = self.item * sum(math.prod(shape) for _, shape in weights)
        return staged_by_generator(version, self.place, self.kind, self.workers)

    @property
    def taken_by_engine(self) -> int:
        """Bytes that vLLM takes; the rest of the GPU is free."""
        if self.kind == "cpu":
            return self.weights + self.activations + self.kv_bytes
        return int(self.config.generator.gpu_memory_utilization * self.device_bytes)

    @cached_property
    def kv_bytes(self) -> int:
        """Bytes left for KV cache; negative if weights and activations exceed vLLM's share."""
        if self.kind == "cpu":
            return self.config.generator.cpu_kv_cache_gib << 30
        if (configured_gib := self.config.generator.gpu_kv_cache_gib) is not None:
            return int(configured_gib * (1 << 30))
        return self.taken_by_engine - self.weights - self.activations

    def kv_of_slot(self, tokens: int) -> int:
        """Bytes of KV cache of one rollout with this many tokens.

        A sliding window keeps the tokens it looks back at, the tokens a batch adds, and one more
        block, because it may begin in the middle of one. A layer with a state takes as many bytes
        whatever the length: vLLM makes blocks so long that the KV entries of one fill at least a
        state, and holds each state in a block.
        """
        block = self._block_tokens
        total = 0
        for layer in self.model.layers:
            shape = layer.attention
            if layer.recurrent is not None:
                # 2: states that vLLM holds for each running rollout: the one it computes, and the
                # one it computes it from.
                total += 2 * block * self._most_entry_bytes
                continue
            cached_tokens = tokens
            if shape.window is not None:
                cached_tokens = min(
                    tokens, shape.window - (not shape.chunked) + self.batched_tokens
                )
            blocks = -(-cached_tokens // block) + (shape.window is not None and not shape.chunked)
            total += blocks * block * self._entry_bytes(layer)
        return total

    def _entry_bytes(self, layer: LayerShape) -> int:
        """Bytes of one token's KV entries."""
        shape = layer.attention
        return 2 * max(1, shape.key_heads // self.workers) * shape.head_size * self.kv_item

    @cached_property
    def _most_entry_bytes(self) -> int:
        return max(
            self._entry_bytes(layer) for layer in self.model.layers if layer.recurrent is None
        )

    @cached_property
    def _block_tokens(self) -> int:
        block_size = self.config.generator.block_size or BLOCK_TOKENS[self.kind]
        states = [
            layer.recurrent.state_bytes(self.item, self.workers)
            for layer in self.model.layers
            if layer.recurrent
        ]
        return block_size * max(
            1, -(-max(states, default=0) // (block_size * self._most_entry_bytes))
        )

    @property
    def slots_that_fit(self) -> int:
        """How many rollouts of the full length the KV cache holds."""
        return max(0, self.kv_bytes) // self.kv_of_slot(self.config.model.max_length)

    @property
    def tokens_per_slot(self) -> int:
        """Tokens of each slot when all are taken: the longest rollout that fits, at most the full
        length.
        """
        share = max(0, self.kv_bytes) // self.slots
        return bisect_right(range(1, self.config.model.max_length + 1), share, key=self.kv_of_slot)


def _count_worker_numbers(name: str, shape: Shape, head_size: int, workers: int) -> int:
    """How many numbers of a weight one worker holds: all of norms and routers, and at least one key
    head.
    """
    rows = shape[0]
    rest = math.prod(shape[1:])
    if "norm" in name or "router" in name or name.endswith("mlp.gate.weight"):
        return rows * rest
    if ".experts." in name:
        return rows * rest // workers
    if name.endswith(SPLIT_BY_INPUT):
        return rows * -(-rest // workers)
    if name.endswith(("o_proj.bias", "down_proj.bias")):
        return rows
    if "k_proj" in name or "v_proj" in name:
        return max(rows // workers, head_size) * rest
    return -(-rows // workers) * rest


def _widest(layer: LayerShape, workers: int) -> int:
    """Numbers per token at a layer's widest point: between a feed-forward's two products, or in
    attention.
    """
    attention = layer.attention
    feed_forward = layer.feed_forward
    heads = 2 * (attention.query_width + 2 * attention.key_width)
    if layer.recurrent is not None:
        heads = 2 * (layer.recurrent.channels + layer.recurrent.values)
    return max(heads, _intermediate_width(feed_forward)) // workers


def _intermediate_width(shape: FeedForwardShape) -> int:
    routed = (
        1 if shape.scaled_input else max(1, shape.chosen)
    )  # vLLM computes the chosen experts alone
    return 3 * (routed * shape.width + shape.shared)
