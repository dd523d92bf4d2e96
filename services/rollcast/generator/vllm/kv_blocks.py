"""The weights with which the KV of each block was computed.

A request that runs again after a preemption gets every block that vLLM's prefix cache still has for its tokens. If
several rollouts share the prompt, these may be other blocks than before. Some were evicted and computed again, with
newer weights, by a rollout that resumed earlier. Some belong to another rollout and were computed with the same
weights: if a prompt ends at the end of a block, each rollout computes its last block itself.

    begin -> grow* -> preempt -> begin -> grow* -> end

So every block has a mark. Two full blocks of the same tokens hold the same KV if their marks are equal.
"""

import itertools
from collections.abc import Mapping, Sequence

NULL_BLOCK = 0
"""vLLM's null block, which is never read."""
Blocks = Sequence[Sequence[int]]
"""The block numbers of a request: by the cache's groups of layers, in the order of its tokens."""


class KvBlocks:
    """The blocks of all unfinished requests."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        """`block_sizes`: tokens of a block, by group."""
        self._sizes = tuple(block_sizes)
        self._weights = 0
        self._marks: dict[int, int] = {}
        """By block: a hash of the mark of the block before and of the weights it was computed with; a unique number
        below 0 if it was computed with several weights."""
        self._several = itertools.count(-3, -1)  # Python hashes -1 and -2 alike
        self._held: dict[str, list[list[int]]] = {}
        self._before: dict[str, list[list[int]]] = {}
        """Marks of the blocks that a request had when it was preempted."""

    def weights_changed(self, computed: Mapping[str, int]) -> None:
        """New weights compute from now on. `computed`: tokens of each running request computed so far."""
        self._weights += 1
        for request_id, num_tokens in computed.items():
            for size, held in zip(self._sizes, self._held[request_id], strict=True):
                if num_tokens % size:
                    self._marks[held[num_tokens // size]] = next(self._several)

    def preempt(self, request_id: str) -> None:
        """A request has lost its blocks. Call it before others get them, possibly in the same step."""
        self._before[request_id] = [list(map(self._mark, held)) for held in self._held[request_id]]

    def begin(self, request_id: str, blocks: Blocks, computed: int) -> int:
        """A request runs, for the first time or again, on `blocks` that already hold its first `computed` tokens.

        Requests that begin in the same step must come in the order of `computed`, because one may get a block that
        another fills. Returns how many of these tokens have the KV that the request has seen: all at its first run.
        """
        before = self._before.pop(request_id, None)
        kept = computed
        for group, (size, held) in enumerate(zip(self._sizes, blocks, strict=True)):
            found = computed // size
            if before is not None:
                pairs = zip(held[:found], before[group], strict=False)
                other = (
                    i for i, (block, mark) in enumerate(pairs) if block != NULL_BLOCK and self._mark(block) != mark
                )
                kept = min(kept, size * next(other, found))
            self._fill(held, found)
        self._held[request_id] = [list(held) for held in blocks]
        return kept

    def grow(self, request_id: str, blocks: Blocks) -> None:
        """A request got more blocks to fill. Call it before `begin` of the same step."""
        for held, more in zip(self._held[request_id], blocks, strict=True):
            held.extend(more)
            self._fill(held, len(held) - len(more))

    def end(self, request_id: str) -> None:
        self._held.pop(request_id, None)
        self._before.pop(request_id, None)

    def _fill(self, held: Sequence[int], start: int) -> None:
        """Mark the blocks from `start` on, which the current weights compute."""
        for index in range(start, len(held)):
            before = self._mark(held[index - 1]) if index else 0
            # Never negative, so that it differs from every number of `_several`.
            self._marks[held[index]] = hash((before, self._weights)) & (1 << 62) - 1

    def _mark(self, block: int) -> int:
        return self._marks.get(block, -1)  # unknown: filled before the observer was installed
