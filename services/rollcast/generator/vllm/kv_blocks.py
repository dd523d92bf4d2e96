"""The weights with which the KV of each block was computed.

A request that runs again after a preemption gets every block that vLLM's prefix cache still has for
its tokens. If several rollouts share the prompt, these may be other blocks than before. Some were
evicted and computed again, with newer weights, by a rollout that resumed earlier. Some belong to
another rollout and were computed with the same weights: if a prompt ends at the end of a block,
each rollout computes its last block itself.

    begin -> grow* -> preempt -> begin -> grow* -> end

So every block has a mark, which stands for all tokens up to its end. Two full blocks of the same
tokens hold the same KV if their marks are equal. A layer with a recurrent state (GatedDeltaNet,
Mamba) has one state for all tokens, and vLLM keeps it in the block in which they end. Earlier
blocks of such a layer are null blocks: their marks are those before the mark of a later one, and
they count, because the state has seen their tokens. Blocks that a sliding window has left are null
blocks too, and do not count.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

NULL_BLOCK = 0
"""vLLM's null block, which is never read."""
Blocks = Sequence[Sequence[int]]
"""The block numbers of a request: by the cache's groups of layers, in the order of its tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockMark:
    """The weights that computed a block, and all before it."""

    number: int
    """A hash of the mark before and of the weights it was computed with; a unique number below 0 if
    it was computed with several weights, or is not known."""
    previous_mark: "BlockMark | None"
    """None: it is the first block, or the blocks before it are not known."""


UNKNOWN = BlockMark(-1, None)
"""Filled before the observer was installed."""


class KvBlocks:
    """The blocks of all unfinished requests."""

    def __init__(self, block_sizes: Sequence[int], recurrent: Collection[int] = ()) -> None:
        """`block_sizes`: tokens of a block, by group.

        `recurrent`: indices of groups that keep a state.
        """
        self._sizes = tuple(block_sizes)
        self._recurrent = frozenset(recurrent)
        self._weights = 0
        self._marks: dict[int, BlockMark] = {}
        """By block: of its present content."""
        self._unique = itertools.count(-3, -1)  # Python hashes -1 and -2 alike
        self._request_blocks: dict[str, list[list[int]]] = {}
        self._request_marks: dict[str, list[list[BlockMark]]] = {}
        """Marks of the blocks of a request, by group, as they were when it got or filled them.
        Blocks that it has left may hold something else by now."""

    def weights_changed(self, computed: Mapping[str, int]) -> None:
        """New weights compute from now on.

        `computed`: tokens of each running request computed so far.
        """
        self._weights += 1
        for request_id, num_tokens in computed.items():
            groups = zip(
                self._sizes,
                self._request_blocks[request_id],
                self._request_marks[request_id],
                strict=True,
            )
            for group, (size, group_blocks, group_marks) in enumerate(groups):
                index = num_tokens // size
                # The weights before and after the change fill this block together.
                if num_tokens % size:
                    group_marks[index] = BlockMark(
                        next(self._unique), group_marks[index].previous_mark
                    )
                    self._marks[group_blocks[index]] = group_marks[index]
                    index += 1
                # Blocks that a request got for drafts alone are filled after the change.
                if group not in self._recurrent:
                    del group_marks[index:]
                    self._fill(request_id, group)

    def preempt(self, request_id: str) -> None:
        """A request has lost its blocks.

        Call it before others get them, possibly in the same step.
        """
        self._request_blocks.pop(request_id, None)

    def begin(self, request_id: str, blocks: Blocks, computed: int) -> int:
        """A request runs, for the first time or again, on `blocks` that already hold its first
        `computed` tokens.

        Requests that begin in the same step must come in the order of `computed`, because one may
        get a block that another fills. Returns how many of these tokens have the KV that the
        request has seen: all at its first run.
        """
        former_marks = self._request_marks.get(request_id)
        self._request_blocks[request_id] = [list(block_ids) for block_ids in blocks]
        self._request_marks[request_id] = []
        num_kept = computed
        for group, (size, group_blocks) in enumerate(zip(self._sizes, blocks, strict=True)):
            num_found = computed // size
            present_marks = self._find_marks(group_blocks[:num_found])
            if former_marks is not None:
                rows = zip(group_blocks, present_marks, former_marks[group], strict=False)
                changed_indices = (
                    index
                    for index, (block, present_mark, former_mark) in enumerate(rows)
                    if present_mark.number != former_mark.number
                    and (block != NULL_BLOCK or group in self._recurrent)
                )
                num_kept = min(num_kept, size * next(changed_indices, num_found))
            self._request_marks[request_id].append(present_marks)
            self._fill(request_id, group)
        return num_kept

    def grow(self, request_id: str, blocks: Blocks) -> None:
        """A request got more blocks to fill. Call it before `begin` of the same step."""
        for group, (group_blocks, more) in enumerate(
            zip(self._request_blocks[request_id], blocks, strict=True)
        ):
            group_blocks.extend(more)
            self._fill(request_id, group)

    def end(self, request_id: str) -> None:
        self._request_blocks.pop(request_id, None)
        self._request_marks.pop(request_id, None)

    def _fill(self, request_id: str, group: int) -> None:
        """Mark the blocks that have no mark yet, which the current weights compute."""
        group_blocks = self._request_blocks[request_id][group]
        group_marks = self._request_marks[request_id][group]
        for block in group_blocks[len(group_marks) :]:
            previous_mark = group_marks[-1] if group_marks else None
            # Never negative, so that it differs from every unique number.
            number = (
                hash((previous_mark.number if previous_mark is not None else 0, self._weights))
                & (1 << 62) - 1
            )
            group_marks.append(BlockMark(number, previous_mark))
            if block != NULL_BLOCK:
                self._marks[block] = group_marks[-1]

    def _find_marks(self, blocks: Sequence[int]) -> list[BlockMark]:
        """The marks of blocks with content; of null blocks those before the next block that has
        content.
        """
        marks: list[BlockMark] = []
        previous_mark: BlockMark | None = None
        # From the end, because the mark of a null block comes from the block after it.
        for block in reversed(blocks):
            mark = previous_mark if block == NULL_BLOCK else self._marks.get(block)
            marks.append(mark or UNKNOWN)
            previous_mark = marks[-1].previous_mark
        return marks[::-1]
