"""With which weights the KV of each block was computed.

vLLM gives a request that runs again after a preemption every block that its prefix cache still has for its tokens. Of a
prompt that several rollouts share these may be others than it had. Some were evicted meanwhile, and computed again with
newer weights by a rollout that ran again sooner. Some are another rollout's own, computed as its own were: where a
prompt ends with a block, each computes the last one for itself.

    begin -> grow* -> preempt -> begin -> grow* -> end

So every block carries a mark. Two full blocks of the same tokens hold the same KV where their marks are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

NO_BLOCK = 0
"""vLLM's null block: nothing is read from it."""
Blocks = Sequence[Sequence[int]]
"""Of a request: by the cache's groups of layers, in the order of its tokens."""


class KvBlocks:
    """The blocks of all unfinished requests."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        """`block_sizes`: tokens of a block, by group."""
        self._sizes = tuple(block_sizes)
        self._weights = 0
        self._marks: dict[int, int] = {}
        """By block: made of the mark of the one before and of the weights that all of it was computed with; a number of
        its own, below 0, where it was computed with several."""
        self._several = itertools.count(-3, -1)  # Python hashes -1 and -2 alike
        self._held: dict[str, list[list[int]]] = {}
        self._before: dict[str, list[list[int]]] = {}
        """Marks of what a request held when it was preempted."""

    def weights_changed(self, computed: Mapping[str, int]) -> None:
        """From now on other weights compute; so far `computed` tokens of each running request are."""
        self._weights += 1
        for request_id, num_tokens in computed.items():
            for size, held in zip(self._sizes, self._held[request_id], strict=True):
                if num_tokens % size:
                    self._marks[held[num_tokens // size]] = next(self._several)

    def preempt(self, request_id: str) -> None:
        """It has lost its blocks, which others may get in the same step: to be called before they do."""
        self._before[request_id] = [list(map(self._mark, held)) for held in self._held[request_id]]

    def begin(self, request_id: str, blocks: Blocks, computed: int) -> int:
        """A request runs, for the first time or again, on `blocks` that hold its first `computed` tokens already.

        Requests that begin in one step come in the order of `computed`, since one may be given what another one fills.
        Returns how many of these tokens have the KV that it has seen: all where it runs for the first time.
        """
        before, kept = self._before.pop(request_id, None), computed
        for group, (size, held) in enumerate(zip(self._sizes, blocks, strict=True)):
            found = computed // size
            if before is not None:
                pairs = zip(held[:found], before[group], strict=False)
                other = (i for i, (block, mark) in enumerate(pairs) if block != NO_BLOCK and self._mark(block) != mark)
                kept = min(kept, size * next(other, found))
            self._fill(held, found)
        self._held[request_id] = [list(held) for held in blocks]
        return kept

    def grow(self, request_id: str, blocks: Blocks) -> None:
        """It got more blocks to fill, before anything begins in the same step."""
        for held, more in zip(self._held[request_id], blocks, strict=True):
            held.extend(more)
            self._fill(held, len(held) - len(more))

    def end(self, request_id: str) -> None:
        self._held.pop(request_id, None)
        self._before.pop(request_id, None)

    def _fill(self, held: Sequence[int], start: int) -> None:
        """Mark the blocks from `start` on, which are computed from now on."""
        for index in range(start, len(held)):
            before = self._mark(held[index - 1]) if index else 0
            self._marks[held[index]] = hash((before, self._weights)) & (1 << 62) - 1

    def _mark(self, block: int) -> int:
        return self._marks.get(block, -1)  # unknown: filled before anything was watched
