"""Versions of the rules of a run that are no settings: which prompts it trains on, and how answers
are graded.

A checkpoint has both; one without them is of a run under the first rules. A resumed run keeps the
rules of its split, as its curve is measured on those prompts, and grades by the newest.
"""

SPLIT_RULES = 2
"""1: a training prompt is left out if its text is exactly that of an evaluated prompt. 2: in any
spelling of it (`rollcast.tasks.contamination`)."""
GRADING_RULES = 2
"""1: printed words that look like numbers are numbers, formulas are rounded to six decimals, a set
equals a tuple, a truncated match is rewarded if it is trained on, a judge's `4/5` is 4 of its best
score. 2: nothing of this (docs/sandbox.md, docs/data.md)."""
FIRST_RULES = 1
"""The version of both in a checkpoint without them."""


def changed_rules(split: int, grading: int) -> list[str]:
    """Sentences on how the rules of a resumed run differ from those of its checkpoint; empty if
    they are the newest.
    """
    lines = []
    if grading != GRADING_RULES:
        lines.append(
            f"resumed with other rules of grading: {grading} -> {GRADING_RULES}: rewards, and the "
            "curve's points from "
            "here on, are graded by the new ones; `rollcast audit` counts the changed rewards"
        )
    if split != SPLIT_RULES:
        lines.append(
            f"the run keeps its split into training and held-out prompts, of rules {split} and "
            f"not {SPLIT_RULES}: training prompts that ask what an evaluated prompt asks, in "
            "another spelling, stay; `rollcast audit` counts them, and a new run leaves them out"
        )
    return lines


def contaminated_in_words(count: int) -> list[str]:
    """A sentence about the prompts that a run keeps under the first rules."""
    if not count:
        return []
    prompts = "1 training prompt asks" if count == 1 else f"{count:,} training prompts ask"
    return [
        f"tasks.dataset: {prompts} what a held-out or downstream prompt asks, in another spelling"
    ]
