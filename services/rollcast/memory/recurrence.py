"""Layers that keep a state instead of KV entries: GatedDeltaNet (Qwen3-Next, Qwen3.5).

    S tokens of a sequence, d bytes of a number in the forward pass (4 or 2)

The state of a rollout has one size, however long the rollout is. For the backward pass
Transformers' own code, which cuts a sequence into chunks, keeps the bytes below;
flash-linear-attention keeps less.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FLOAT32_BYTES = 4
"""Bytes of a float32, in which the recurrence is computed and its state is held."""
CHUNK_TOKENS = 32
"""Tokens of a chunk, to which every sequence is padded. The trainer asks for it
(learner/recurrence.py)."""


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int
    """Tokens that the convolution before the recurrence sees."""

    @property
    def values(self) -> int:
        """Numbers of all values, and of what gates them."""
        return self.value_heads * self.value_size

    @property
    def channels(self) -> int:
        """Numbers of queries, keys and values together."""
        return 2 * self.key_heads * self.key_size + self.values

    @property
    def state(self) -> int:
        """Numbers of the state of one sequence."""
        return self.value_heads * self.key_size * self.value_size

    @property
    def operations(self) -> int:
        """Operations of one token's recurrence in a forward pass."""
        # Operations of one token for each number of the state: decay 1, reading what a key holds 2,
        # writing 2, the query 2
        return 7 * self.state

    def state_bytes(self, item: int, workers: int) -> int:
        """Bytes of one rollout's state on one worker.

        The convolution's part has numbers of `item` bytes.
        """
        return (self.channels * (self.kernel - 1) * item + self.state * FLOAT32_BYTES) // workers

    def kept_bytes(self, tokens: int, longest: int, d: int) -> int:
        """Bytes for the backward pass of `tokens` tokens in sequences of `longest`."""
        padded = tokens * -(-longest // CHUNK_TOKENS) * CHUNK_TOKENS // longest
        keys = self.value_heads * self.key_size  # repeated for every head of values
        convolution = 2 * self.channels * d
        gated_norm = self.values * (3 * FLOAT32_BYTES + 3 * d)
        unnormalised_keys = (
            2 * keys * FLOAT32_BYTES
        )  # queries and keys in float32, not of length 1 yet
        # Queries and keys: of length 1, decayed, times beta, and what the solved system makes of
        # the keys.
        of_keys = 6 * keys
        of_values = 3 * self.values
        between_tokens = 5 * self.value_heads * CHUNK_TOKENS
        states = self.state // CHUNK_TOKENS
        in_chunks = (of_keys + of_values + between_tokens + states) * FLOAT32_BYTES
        return tokens * (convolution + gated_norm + unnormalised_keys) + padded * in_chunks

    def selected_numbers(self) -> int:
        """Numbers per token that selective recomputation keeps: the results of the projections."""
        return self.channels + self.values + 2 * self.value_heads

    def passing_bytes(self, tokens: int) -> int:
        """Bytes of gradients on the way back: of queries, keys and values in float32, and of their
        chunks' products.
        """
        keys = self.value_heads * self.key_size
        return (
            tokens
            * FLOAT32_BYTES
            * (3 * keys + 2 * self.values + 2 * self.value_heads * CHUNK_TOKENS)
        )


def recurrent_shape(settings: Mapping[str, Any]) -> RecurrentShape:
    """`settings`: config.json of a text model, with Transformers' defaults for missing settings."""
    return RecurrentShape(
        key_heads=settings.get("linear_num_key_heads", 16),
        value_heads=settings.get("linear_num_value_heads", 32),
        key_size=settings.get("linear_key_head_dim", 128),
        value_size=settings.get("linear_value_head_dim", 128),
        kernel=settings.get("linear_conv_kernel_dim", 4),
    )
