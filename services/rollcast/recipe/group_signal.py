"""Whether a group that came back can teach: its rewards differ, or why it is filtered and what to
change.

    usable      rewards differ among the rollouts that count, or the recipe does without that filter
                or without rewards
    truncated   every answer was cut off by the token budget
    wrong       every answer that counts has reward 0
    right       every answer that counts has reward 1
    equal       every answer that counts has the same reward between the two
    no_verdict  no answer was graded
    filtered    usable, except that `recipe.filter`, a function of the user's own, drops it

`classify_group` decides on each except the last. A group with at most one rollout that counts is
named after the reason for which most of the others do not count.
"""

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum

from rollcast.config.recipe import Recipe

MIN_GROUPS_TO_WARN = 12
"""Groups that must come back before the warning that no group is usable. Chosen, not measured."""


class GroupSignal(StrEnum):
    USABLE = "usable"
    TRUNCATED = "truncated"
    WRONG = "wrong"
    RIGHT = "right"
    EQUAL = "equal"
    NO_VERDICT = "no_verdict"
    FILTERED = "filtered"


_HOW = {
    GroupSignal.TRUNCATED: "every answer cut off",
    GroupSignal.WRONG: "every answer wrong",
    GroupSignal.RIGHT: "every answer right",
    GroupSignal.EQUAL: "the same reward for every answer",
    GroupSignal.NO_VERDICT: "no verdict on any answer",
    GroupSignal.FILTERED: "False from recipe.filter",
}
"""The signal of one group or more in words."""
_REMEDY = {
    GroupSignal.TRUNCATED: "raise recipe.max_completion_tokens (now {most}), or give a model and a "
    "tasks.prompt_format "
    "with which answers end",
    GroupSignal.WRONG: "`rollcast try` shows answers and rewards: correct the verifier or "
    "tasks.prompt_format, "
    "or "
    "take "
    "easier prompts",
    GroupSignal.RIGHT: "take harder prompts",
    GroupSignal.EQUAL: "correct the verifier, which gives every answer of a prompt the same reward",
    GroupSignal.NO_VERDICT: "correct the verifier, or raise tasks.grading.deadline_seconds",
    GroupSignal.FILTERED: "correct the function of recipe.filter, which drops them, or remove it",
}


def classify_group(
    rewards: Sequence[float],
    truncated: Sequence[bool],
    has_verdict: Sequence[bool],
    recipe: Recipe,
    compared: Sequence[Hashable] | None = None,
) -> GroupSignal:
    """The signal of one group, by its rollouts. Truncated ones have reward 0.

    `compared`: what must differ in place of `rewards`. None = those.
    """
    if not recipe.uses_reward:  # a teacher judges every answer that is not left out for its length
        is_any_whole = not (recipe.exclude_truncated and all(truncated))
        return GroupSignal.USABLE if is_any_whole else GroupSignal.TRUNCATED
    counted = [0.0 if cut else reward for reward, cut in zip(rewards, truncated, strict=True)]
    eligible = [
        index
        for index, (cut, graded) in enumerate(zip(truncated, has_verdict, strict=True))
        if graded and not (cut and recipe.exclude_truncated)
    ]
    eligible_rewards = [counted[index] for index in eligible]
    outcomes = {(compared or counted)[index] for index in eligible}
    if len(outcomes) > 1 or (eligible and not recipe.zero_variance_filter):
        return GroupSignal.USABLE
    if all(truncated):
        return GroupSignal.TRUNCATED
    if len(eligible_rewards) <= 1:
        num_ungraded = sum(not graded for graded in has_verdict)
        num_cut = sum(cut for cut, graded in zip(truncated, has_verdict, strict=True) if graded)
        if max(num_ungraded, num_cut) > len(eligible_rewards):
            return GroupSignal.NO_VERDICT if num_ungraded >= num_cut else GroupSignal.TRUNCATED
    if eligible_rewards[0] <= 0.0:
        return GroupSignal.WRONG
    return GroupSignal.RIGHT if eligible_rewards[0] >= 1.0 else GroupSignal.EQUAL


def signal_in_words(signal: GroupSignal) -> str:
    """Why a group of this signal is not trained on."""
    return _HOW.get(signal, "no rollout with a token to train on")


def came_back_in_words(counts: Mapping[str, float]) -> str:
    """How many groups came back, how many of them are usable, and why the others are not; empty if
    none came back.
    """
    num_groups = int(sum(counts.values()))
    if num_groups == 0:
        return ""
    groups = "1 group" if num_groups == 1 else f"{num_groups:,} groups"
    sentence = f"{groups} came back, {int(counts.get(GroupSignal.USABLE, 0)):,} usable"
    unused = _unused_in_words(counts)
    return f"{sentence}: {unused}" if unused else sentence


def why_none_is_used(counts: Mapping[str, int], recipe: Recipe) -> str | None:
    """A sentence with the remedy once the first dozen groups are there and none is usable.

    `counts`: by signal.
    """
    num_groups = sum(counts.values())
    if num_groups < MIN_GROUPS_TO_WARN or counts.get(GroupSignal.USABLE):
        return None
    main_signal = _count_unused(counts)[0][0]
    remedy = _REMEDY[main_signal].format(most=recipe.max_completion_tokens)
    return (
        f"none of the first {num_groups} groups can be trained on: "
        f"{_unused_in_words(counts)}; {remedy}"
    )


def _unused_in_words(counts: Mapping[str, float]) -> str:
    """How many groups are not usable for which reason, the most frequent first; empty if all are
    usable.
    """
    return ", ".join(f"{count:,} with {_HOW[signal]}" for signal, count in _count_unused(counts))


def _count_unused(counts: Mapping[str, float]) -> list[tuple[GroupSignal, int]]:
    """The most frequent first."""
    unused = [
        (signal, int(counts[signal]))
        for signal in GroupSignal
        if signal is not GroupSignal.USABLE and int(counts.get(signal, 0))
    ]
    return sorted(unused, key=lambda signal_count: -signal_count[1])
