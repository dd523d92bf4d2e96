"""Data reuse: training on fewer prompts, more often."""

import random
from collections.abc import Sequence
from dataclasses import replace

from rollcast.config.errors import UserError
from rollcast.recipe.mixture import Share


def reduce_shares(shares: Sequence[Share], unique_prompts: int | None, *, seed: int) -> list[Share]:
    """Return the parts of the training data with `unique_prompts` prompts in all; None = all of
    them.

    Every part keeps prompts in proportion to its size, and one at least, so that the prompts of all
    parts are repeated about equally often. They keep their order, and a smaller draw is part of a
    larger one. Raises UserError if there are fewer prompts, or more parts than prompts.
    """
    if unique_prompts is None:
        return list(shares)
    sizes = [len(share.prompt_ids) for share in shares]
    if unique_prompts > sum(sizes):
        raise UserError(
            f"recipe.unique_prompts = {unique_prompts}: the data set has {sum(sizes)} training "
            "prompts; lower it or use more data"
        )
    if unique_prompts < len(shares):
        raise UserError(
            f"recipe.unique_prompts = {unique_prompts}: the mixture has {len(shares)} parts and "
            "each needs a prompt; raise it or remove parts"
        )
    return [
        replace(share, prompt_ids=_draw_ids(share.prompt_ids, count, seed))
        for share, count in zip(shares, _apportion(sizes, unique_prompts), strict=True)
    ]


def _draw_ids(prompt_ids: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` of the ids in their order."""
    order = list(range(len(prompt_ids)))
    random.Random(f"data-reuse/{seed}").shuffle(order)
    # The beginning of one shuffle, so that a smaller draw is part of a larger one.
    return [prompt_ids[index] for index in sorted(order[:count])]


def _apportion(sizes: Sequence[int], total: int) -> list[int]:
    """`total` among parts of these sizes by Webster's method: if the total grows, no part's number
    falls.
    """
    counts = [min(1, size) for size in sizes]
    for _ in range(total - sum(counts)):
        growing = [index for index, size in enumerate(sizes) if counts[index] < size]
        counts[
            min(growing, key=lambda share_index: (counts[share_index] + 0.5) / sizes[share_index])
        ] += 1
    return counts
