"""Defects that no honest generator's rollout has: it is compared with its task, and its numbers with bounds."""

from collections.abc import Sequence

import numpy as np

from rollcast.rollouts.records import GradingStatus, PromptTask, Rollout, StopReason

MAX_LOGPROB = 1e-4
"""A log-softmax in float32 may round to a little above 0."""
MIN_LOGPROB = -104.0
"""The smallest probability in float32 is 2^-149, whose logarithm is -103.3. A smaller one is 0 and is never sampled."""
MAX_GROUP_SECONDS = 7 * 86_400.0
"""Longest grading, and longest time between a group's begin and end: the group may be handed over, outlive outages and
weekends without a trainer, and end on a clock that was set back or is another machine's. A longer time would spoil the
pacing."""


def rollouts_defect(rollouts: Sequence[Rollout], task: PromptTask, *, vocab_size: int, max_length: int) -> str | None:
    """Return the defect of the first wrong rollout, or None. `max_length`: tokens of prompt and completion."""
    max_tokens = min(max_length - len(task.prompt_token_ids), task.length.max_tokens)
    for rollout in rollouts:
        what = _length_defect(rollout, max_tokens) or _grading_defect(rollout) or _interruption_defect(rollout, task)
        if what := what or _kv_defect(rollout, len(task.prompt_token_ids)):
            return f"rollout {rollout.index} {what}"
    return _number_defect(rollouts, vocab_size)


def _length_defect(rollout: Rollout, max_tokens: int) -> str | None:
    length = len(rollout.token_ids)
    if not length:
        return "has no token"
    if len(rollout.logprobs) != length:
        return f"has {length} tokens and {len(rollout.logprobs)} log-probabilities"
    if length > max_tokens:
        return f"has {length} tokens, at most {max_tokens} are allowed behind its prompt"
    return None


def _grading_defect(rollout: Rollout) -> str | None:
    reward = rollout.reward
    status = rollout.grading_status
    if not 0.0 <= reward <= 1.0:
        return f"has a reward of {reward:g}, not in [0, 1]"
    if status is GradingStatus.UNGRADED:
        return "was not graded"
    if (status is GradingStatus.OK) is not (reward > 0.0):
        return f"has a reward of {reward:g} and the verdict {status}"
    if not 0.0 <= rollout.grading_seconds <= MAX_GROUP_SECONDS:
        return f"was graded for {rollout.grading_seconds:g} s, not within 0 to {MAX_GROUP_SECONDS:g}"
    return None


def _interruption_defect(rollout: Rollout, task: PromptTask) -> str | None:
    """Only the phrase that ends thinking is forced and carries no loss. A truncated rollout has used its budget."""
    budget = task.length
    length = len(rollout.token_ids)
    most = budget.max_tokens
    if rollout.interrupted:
        if not budget.interrupt_from:
            return "was interrupted, and its task interrupts none"
        start = next((start for start, _ in rollout.loss_masked), -1)
        end = start + len(budget.phrase)
        if not budget.interrupt_from <= start <= budget.interrupt_to or rollout.loss_masked != ((start, end),):
            return f"was interrupted, and its loss-mask range is {str(rollout.loss_masked)[:200]}"
        if not np.array_equal(rollout.token_ids[start:end], budget.phrase):
            return "was interrupted with another phrase than its task's"
        most = min(most, end + budget.answer_tokens)
        if length > most:
            return f"has {length - end} tokens of answer, at most {budget.answer_tokens} are allowed"
    elif rollout.loss_masked:
        return "has a loss-mask range and was not interrupted"
    if rollout.stop_reason is StopReason.LENGTH and length < most:
        return f"was truncated after {length} of {most} tokens"
    return None


def _kv_defect(rollout: Rollout, num_prompt_tokens: int) -> str | None:
    if not rollout.kv_marks:
        return None
    versions = {span.version for span in rollout.version_spans}
    for mark in rollout.kv_marks:
        if not 0 < mark.position < len(rollout.token_ids) or mark.kept > num_prompt_tokens + mark.position:
            return f"has a KV mark at {mark.position} that keeps {mark.kept}, of {len(rollout.token_ids)} tokens"
        if mark.version not in versions:
            return f"has a KV mark of the version {mark.version}, which sampled none of its tokens"
    return None


def _number_defect(rollouts: Sequence[Rollout], vocab_size: int) -> str | None:
    """One look at the numbers of all rollouts together; which of them is wrong is found only if one is."""
    tokens = np.concatenate([rollout.token_ids for rollout in rollouts])
    logprobs = np.concatenate([rollout.logprobs for rollout in rollouts])
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        return f"a token id is outside the vocabulary of {vocab_size}"
    lowest = float(logprobs.min())
    highest = float(logprobs.max())  # nan if any is nan
    if lowest >= MIN_LOGPROB and highest <= MAX_LOGPROB:
        return None
    owner = np.repeat([rollout.index for rollout in rollouts], [len(rollout.logprobs) for rollout in rollouts])
    place = int(np.argmin((logprobs >= MIN_LOGPROB) & (logprobs <= MAX_LOGPROB)))
    value = float(logprobs[place])
    name = f"rollout {owner[place]}"
    if not np.isfinite(value):
        return f"{name} has a log-probability that is not finite"
    bound = "above 0" if value > 0 else f"below {MIN_LOGPROB:g}, which is never sampled"
    return f"{name} has a log-probability of {value:g}, {bound}"
