"""Length control: forced interruption of thinking, or a length penalty (arXiv 2510.13786, section
4, A.10, Eq 9).
"""

import random


def interruption_position(
    *, seed: int, sequence: int, rollout: int, low: int, high: int, turn: int = 0
) -> int:
    """Return after how many thinking tokens the phrase is forced, uniform in [low, high] (the
    paper: 10k to 12k).

    A function of the run's `seed`, the task's dispatch `sequence`, the `rollout` index and the
    episode's `turn` alone: a rollout that is repeated or continued elsewhere is cut at the same
    position.
    """
    assert 0 <= low <= high, (low, high)
    drawn_for = f"interruption/{seed}/{sequence}/{rollout}"
    if turn:
        drawn_for += f"/{turn}"
    return random.Random(drawn_for).randint(low, high)


def length_penalty(length: int, *, max_tokens: int, cache_tokens: int) -> float:
    """Return Eq (9), clip((L_max - |y|) / L_cache - 1, -1, 0); it is added to the reward of correct
    rollouts only, scaled by the gap between right and wrong (`rollcast.trainer.control.assembly`).

    `length` is |y| in completion tokens. 0 up to L_max - L_cache, -1 from L_max on.
    """
    return min(max((max_tokens - length) / cache_tokens - 1.0, -1.0), 0.0)
