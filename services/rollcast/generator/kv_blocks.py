"""Whose KV lies in which block.

vLLM gives a request that runs again after a preemption every block that its prefix cache still has for its tokens. A
block of a prompt that several rollouts share may have been evicted meanwhile, and computed again by another of them
that ran again sooner: the same tokens, other weights than those that the request has computed with so far.

    begin -> grow* -> (preempted) -> begin -> grow* -> end
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

NO_BLOCK = 0
"""vLLM's null block: nothing is read from it."""


class KvBlocks:
    """The blocks that each unfinished request holds, or held when it was preempted."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        """`block_sizes`: tokens of a block, for each of the cache's groups of layers."""
        self._sizes = tuple(block_sizes)
        self._filled: Counter[int] = Counter()
        """How often each block was handed out to be filled."""
        self._held: dict[str, list[list[tuple[int, int]]]] = {}
        """By request and group: blocks, and how often each had been handed out then."""

    def begin(self, request_id: str, blocks: Sequence[Sequence[int]], computed: int) -> int:
        """A request runs, for the first time or again, on `blocks` that hold its first `computed` tokens.

        Returns how many of these tokens it has held without a break: all of them where it runs for the first time.
        """
        before = self._held.get(request_id)
        kept = computed
        held = []
        for group, (size, ids) in enumerate(zip(self._sizes, blocks, strict=True)):
            found = computed // size
            self._filled.update(ids[found:])
            now = [(block, self._filled[block]) for block in ids]
            held.append(now)
            if before is not None:
                then = before[group]
                others = (i for i, one in enumerate(now[:found]) if one[0] != NO_BLOCK and [one] != then[i : i + 1])
                kept = min(kept, size * next(others, found))
        self._held[request_id] = held
        return kept

    def grow(self, request_id: str, blocks: Sequence[Sequence[int]]) -> None:
        """It got more blocks to fill."""
        for held, ids in zip(self._held[request_id], blocks, strict=True):
            self._filled.update(ids)
            held.extend((block, self._filled[block]) for block in ids)

    def end(self, request_id: str) -> None:
        self._held.pop(request_id, None)
