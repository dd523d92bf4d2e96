"""Why an episode that came back must not be used: it is compared with the budgets of its task.

The codec has looked at what any episode must be (`rollcast.rollouts.validation`).
"""

import numpy as np

from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    LegKind,
    PromptTask,
    Rollout,
    RolloutGroup,
    StopReason,
    TokenIds,
    loss_mask,
)

MAX_GROUP_SECONDS = 7 * 86_400.0
"""Longest grading, longest time of an episode in its environment or in sampling, and longest time
between a group's begin and end: the group may be handed over, outlive outages and weekends without
a trainer, and end on a clock that was set back or is another machine's. A longer time would spoil
the pacing and the sums of seconds."""
WHOLE_ENDS = frozenset({EpisodeEnd.ANSWERED, EpisodeEnd.DONE})
TRUNCATED_ENDS = frozenset({EpisodeEnd.TOKENS, EpisodeEnd.TURNS, EpisodeEnd.SECONDS})


def environment_defect(group: RolloutGroup, task: PromptTask) -> str | None:
    """Return a sentence if an episode was answered without its environment, or one answer as an
    episode.
    """
    expected_name = task.episode.environment if task.episode else None
    for rollout in group.rollouts:
        name = rollout.episode.environment if rollout.episode else None
        if name == expected_name:
            continue
        if name is None:
            return (
                f"rollout {rollout.index} is one answer; the task asked for an episode in the "
                f"environment {expected_name!r}"
            )
        if expected_name is None:
            return (
                f"rollout {rollout.index} is an episode in the environment {name[:200]!r}; the "
                "task asked for one answer"
            )
        return (
            f"rollout {rollout.index} is of the environment {name[:200]!r}; the task asked for "
            f"{expected_name!r}"
        )
    return None


def recorded_prompts(rollout: Rollout) -> list[TokenIds]:
    """The prompts that came with it, which its task does not have."""
    if rollout.episode is None:
        return []
    episode_prompt = rollout.episode.prompt_token_ids
    first = [] if episode_prompt is None else [episode_prompt]
    return first + [branch.prompt_token_ids for branch in rollout.episode.branches]


def episode_defect(
    rollout: Rollout,
    episode: Episode,
    task: PromptTask,
    max_length: int,
    *,
    may_mask_sampled: bool = False,
) -> str | None:
    """Return the defect of one episode, or None.

    max_length: tokens of prompt and completion of a sequence. may_mask_sampled: its environment may
    take the loss from tokens that the policy sampled.
    """
    return (
        _budget_defect(rollout, episode, task, max_length)
        or _end_defect(rollout, episode)
        or _turns_defect(episode)
        or next(
            filter(
                None,
                (_mask_defect(sequence, task, may_mask_sampled) for sequence in rollout.sequences),
            ),
            None,
        )
    )


def _budget_defect(
    rollout: Rollout, episode: Episode, task: PromptTask, max_length: int
) -> str | None:
    """An episode may end before its first token, and is then not trained on."""
    total = 0
    for sequence in rollout.sequences:
        length = len(sequence.token_ids)
        num_prompt = len(rollout.sequence_prompt(sequence, task.prompt_token_ids))
        if num_prompt + length > max_length:
            return (
                f"has a sequence of {num_prompt} + {length} tokens, and the longest may have "
                f"{max_length}"
            )
        total += length
    if total > task.length.max_tokens:
        return f"has {total} tokens, at most {task.length.max_tokens} are allowed in an episode"
    max_turns = task.episode.max_turns if task.episode is not None else 0
    if len(episode.turns) > max_turns:
        return f"has {len(episode.turns)} turns, at most {max_turns} are allowed"
    return None


def _end_defect(rollout: Rollout, episode: Episode) -> str | None:
    is_truncated = rollout.stop_reason is StopReason.LENGTH
    if is_truncated is not (episode.end in TRUNCATED_ENDS):
        return f"stopped for {rollout.stop_reason}, and its episode ended for {episode.end}"
    has_tokens = any(len(sequence.token_ids) for sequence in rollout.sequences)
    if not episode.turns and (episode.end in WHOLE_ENDS or (has_tokens and rollout.has_verdict)):
        return f"has no turn, and its episode ended for {episode.end}"
    # The most that restarts of an environment can be.
    max_restarts = 10
    if not 0 <= episode.restarts <= max_restarts:
        return f"began again {episode.restarts} times, and {max_restarts} is the most"
    turn_seconds = (turn.environment_seconds for turn in episode.turns)
    seconds = max(episode.environment_seconds, episode.sampling_seconds, *turn_seconds)
    if not seconds <= MAX_GROUP_SECONDS:
        return f"took {seconds:g} s, more than {MAX_GROUP_SECONDS:g} s"
    return None


def _turns_defect(episode: Episode) -> str | None:
    # Reward of one turn, either sign: a thousand for each of its calls, which is the most that a
    # generator accepts.
    max_turn_reward = 64_000.0
    for number, turn in enumerate(episode.turns):
        # Tool calls of one turn: a generator makes half as many at most
        if not 0 <= turn.malformed_calls <= turn.tool_calls <= 64:
            return (
                f"has {turn.malformed_calls} malformed of {turn.tool_calls} calls in turn {number}"
            )
        if not abs(turn.reward) <= max_turn_reward:
            return (
                f"has a reward of {turn.reward:g} for turn {number}, more than {max_turn_reward:g}"
            )
    return None


def _mask_defect(
    sequence: Rollout | Branch, task: PromptTask, may_mask_sampled: bool
) -> str | None:
    """Given tokens and the phrase that ends thinking carry no loss, and only some environments take
    it from others.
    """
    has_loss = loss_mask(sequence)
    is_sampled = np.ones(len(sequence.token_ids), dtype=np.bool_)
    for leg in sequence.legs:
        if leg.kind is LegKind.INTERRUPTION_PHRASE:
            is_phrase = np.array_equal(sequence.token_ids[leg.start : leg.end], task.length.phrase)
            if not is_phrase or not task.length.interrupt_from:
                return "was interrupted with another phrase than its task's"
        if leg.kind in (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE):
            is_sampled[leg.start : leg.end] = False
    # No given token may have loss. Whether every sampled one must have it depends on the
    # environment.
    is_wrong = has_loss > is_sampled if may_mask_sampled else has_loss != is_sampled
    if is_wrong.any():
        return (
            f"has the loss-mask ranges {str(sequence.loss_masked)[:200]}, and other tokens were "
            "not sampled"
        )
    return None
