"""Why a group that came back must not be used: it is compared with the task it answers, and its
numbers with bounds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.rollouts.base import MAX_FAILURES
from rollcast.rollouts.records import (
    Branch,
    GradingStatus,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    TokenIds,
    loss_mask,
)
from rollcast.trainer.control.episode_defects import (
    MAX_GROUP_SECONDS,
    environment_defect,
    episode_defect,
    recorded_prompts,
)
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.learner.batch import RouterShape

MAX_LOGPROB = 1e-4
"""A log-softmax in float32 may round to a little above 0."""
MIN_CERTAIN_TOKENS = 256
"""A group of this many sampled tokens, each of a probability of exactly 1, was not sampled by a
language model. All of its rollouts would be equal, and teach nothing."""


@dataclass(slots=True)
class DefectFinder:
    """Compares the groups of one run, whose numbers came over the network."""

    state: TrainerState
    """State with the surviving history and the newest published version."""
    vocab_size: int
    max_length: int
    """Tokens of prompt and completion."""
    routing: RouterShape | None = None
    """Shape of the expert choices that a training group must bring; None = the recipe replays
    none."""
    masking_environments: frozenset[str] = frozenset()
    """Names of those that may take the loss from tokens that the policy sampled."""
    end_token_ids: frozenset[int] = frozenset()
    """Tokens that end a text by themselves. Empty = not known."""

    def find(self, group: RolloutGroup, task: PromptTask) -> str | None:
        """Return why this group must not be used as the answer to `task`, as that was dispatched;
        None if it may.
        """
        if defect := _task_defect(group, task) or self._version_defect(group):
            return defect
        seconds = group.finished_at - group.started_at
        # Of either sign: begin and end may be by the clocks of two machines. NaN is refused too.
        if not abs(seconds) <= MAX_GROUP_SECONDS:
            return f"it took {seconds:g} s, more than {MAX_GROUP_SECONDS:g} s"
        # A group may have begun this much later than now, by a clock that is wrong
        if group.started_at > time.time() + 86_400.0:
            return f"it began at {group.started_at:g}, which is far in the future"
        # A generator that leaves hands its tasks back once
        if not 0 <= group.hand_backs <= 10_000:
            return f"it was handed back {group.hand_backs} times"
        defect = self._rollouts_defect(group.rollouts, task)
        if group.purpose is not Purpose.TRAIN:
            return defect
        if defect is None and self.routing is not None:
            defect = _routing_defect(group, self.routing)
        return defect or _certainty_defect(group)

    def _rollouts_defect(self, rollouts: Sequence[Rollout], task: PromptTask) -> str | None:
        """Return the defect of the first wrong rollout, or None."""
        max_tokens = min(self.max_length - len(task.prompt_token_ids), task.length.max_tokens)
        may_mask = (
            task.episode is not None and task.episode.environment in self.masking_environments
        )
        for rollout in rollouts:
            if rollout.episode is None:
                defect = (
                    _length_defect(rollout, max_tokens)
                    or _interruption_defect(rollout, task)
                    or self._end_defect(rollout)
                )
            else:
                defect = episode_defect(
                    rollout, rollout.episode, task, self.max_length, may_mask_sampled=may_mask
                )
            if (
                defect := defect
                or _grading_defect(rollout)
                or _kv_defect(rollout, task.prompt_token_ids)
                or _count_defect(rollout)
            ):
                return f"rollout {rollout.index} {defect}"
        return _number_defect(rollouts, self.vocab_size)

    def _end_defect(self, rollout: Rollout) -> str | None:
        last = int(rollout.token_ids[-1])
        if (
            rollout.stop_reason is StopReason.END
            and self.end_token_ids
            and last not in self.end_token_ids
        ):
            return f"ended by itself with the token {last}, which ends no text"
        return None

    def _version_defect(self, group: RolloutGroup) -> str | None:
        newest = self.state.published
        versions = group.versions
        if (latest := max(versions | {group.first_version})) > newest:
            return f"it names the version {latest}, and the newest published is {newest}"
        for version in sorted(versions | {group.first_version}):
            if self.state.history.never_was(version):
                return f"it names the version {version}, and its incarnation began at a later step"
        # The staleness gate takes a group's deadline from this field.
        if group.first_version != min(versions, default=group.first_version):
            return (
                f"it names {group.first_version} as its oldest version, and its oldest token is of "
                f"{min(versions)}"
            )
        return None


def _task_defect(group: RolloutGroup, task: PromptTask) -> str | None:
    """Fields that a generator copies from its task must be equal."""
    prompt = group.prompt_token_ids
    if not len(prompt):
        return "the prompt is empty"
    if group.purpose is not task.purpose:
        return f"it is of purpose {group.purpose}, the task of purpose {task.purpose}"
    if group.prompt_id != task.prompt_id:
        return (
            f"it answers the prompt {group.prompt_id[:200]!r}; the task asked for "
            f"{task.prompt_id!r}"
        )
    if group.incarnation != task.incarnation:
        return f"it names the incarnation {group.incarnation}, which never dispatched this task"
    if group.dataset != task.dataset:
        return f"it is of the data set {group.dataset[:200]!r}, the task of {task.dataset!r}"
    if not np.array_equal(prompt, task.prompt_token_ids):
        return f"its prompt has other tokens than {task.prompt_id!r}"
    if _as_sent(group.sampling) != _as_sent(task.sampling):
        return f"it was sampled with {group.sampling}; the task asked for {task.sampling}"
    if group.length != task.length:
        return (
            f"its length budget is {str(group.length)[:200]}; the task asked for "
            f"{str(task.length)[:200]}"
        )
    if group.eval_step not in (0, task.eval_step):  # 0 = not stated
        return (
            f"it names the evaluation of step {group.eval_step}; the task asked for "
            f"{task.eval_step}"
        )
    if not 0 <= group.attempt < MAX_FAILURES:
        return f"it is attempt {group.attempt}, and a task is given up after {MAX_FAILURES}"
    if len(group.rollouts) != task.num_rollouts:
        return f"it holds {len(group.rollouts)} rollouts; the task asked for {task.num_rollouts}"
    return environment_defect(group, task)


def _as_sent(sampling: Sampling) -> tuple[float, float, int, int]:
    """Temperature and top_p travel as float32."""
    return (
        float(np.float32(sampling.temperature)),
        float(np.float32(sampling.top_p)),
        sampling.top_k,
        sampling.seed,
    )


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
    # True for NaN too.
    if not 0.0 <= reward <= 1.0:
        return f"has a reward of {reward:g}, not in [0, 1]"
    if status is GradingStatus.UNGRADED:
        return "was not graded"
    # Generators give the verdict OK to rewards above 0, and to no others.
    if (status is GradingStatus.OK) is not (reward > 0.0):
        return f"has a reward of {reward:g} and the verdict {status}"
    if not 0.0 <= rollout.grading_seconds <= MAX_GROUP_SECONDS:
        return (
            f"was graded for {rollout.grading_seconds:g} s, not within 0 to {MAX_GROUP_SECONDS:g}"
        )
    return None


def _interruption_defect(rollout: Rollout, task: PromptTask) -> str | None:
    """Only the phrase that ends thinking is forced and carries no loss.

    A truncated rollout has used its budget.
    """
    budget = task.length
    length = len(rollout.token_ids)
    max_tokens = budget.max_tokens
    if rollout.interrupted:
        if not budget.interrupt_from:
            return "was interrupted, and its task interrupts none"
        start = next((start for start, _ in rollout.loss_masked), -1)
        end = start + len(budget.phrase)
        if not budget.interrupt_from <= start <= budget.interrupt_to or rollout.loss_masked != (
            (start, end),
        ):
            return f"was interrupted, and its loss-mask range is {str(rollout.loss_masked)[:200]}"
        if not np.array_equal(rollout.token_ids[start:end], budget.phrase):
            return "was interrupted with another phrase than its task's"
        max_tokens = min(max_tokens, end + budget.answer_tokens)
        if length > max_tokens:
            return (
                f"has {length - end} tokens of answer, at most {budget.answer_tokens} are allowed"
            )
    elif rollout.loss_masked:
        return "has a loss-mask range and was not interrupted"
    if rollout.stop_reason is StopReason.LENGTH and length < max_tokens:
        return f"was truncated after {length} of {max_tokens} tokens"
    return None


def _kv_defect(rollout: Rollout, task_prompt: TokenIds) -> str | None:
    for sequence in rollout.sequences:
        if not sequence.kv_marks:
            continue
        num_prompt = len(rollout.sequence_prompt(sequence, task_prompt))
        length = len(sequence.token_ids)
        versions = {span.version for span in sequence.version_spans}
        # KV is rebuilt at a token once for an update of the weights or a preemption, and again
        # after a hand-over 16: marks that even a short sequence may have.
        if len(sequence.kv_marks) > 2 * length + 16:
            return f"has {len(sequence.kv_marks)} KV marks in {length} tokens"
        for mark in sequence.kv_marks:
            if not 0 < mark.position < length or mark.num_kept > num_prompt + mark.position:
                return (
                    f"has a KV mark at {mark.position} that keeps {mark.num_kept}, of {length} "
                    "tokens"
                )
            if mark.version not in versions:
                return (
                    f"has a KV mark of the version {mark.version}, which sampled none of its tokens"
                )
    return None


def _count_defect(rollout: Rollout) -> str | None:
    # A rollout may be preempted before each of its tokens, and this many times besides
    max_preemptions = sum(len(sequence.token_ids) for sequence in rollout.sequences) + 1_000
    if not 0 <= rollout.preemptions <= max_preemptions:
        return (
            f"was preempted {rollout.preemptions} times, and {max_preemptions} are the most for "
            "its tokens"
        )
    return None


def _certainty_defect(group: RolloutGroup) -> str | None:
    """Each token that was sampled had a probability of exactly 1, and the sampling did not make it
    so.
    """
    sampling = group.sampling
    # top_p keeps one token alone if it is likely enough. Below a temperature of 0.1 an ordinary
    # lead of a token makes its probability exactly 1 in float32.
    if sampling.top_k == 1 or sampling.top_p < 1 or sampling.temperature < 0.1:
        return None
    num_tokens = 0
    for rollout in group.rollouts:
        for sequence in rollout.sequences:
            has_loss = loss_mask(sequence)
            if sequence.logprobs[has_loss].any():
                return None
            num_tokens += int(has_loss.sum())
    if num_tokens < MIN_CERTAIN_TOKENS:
        return None
    return f"all of its {num_tokens} sampled tokens have the log-probability 0"


def _number_defect(rollouts: Sequence[Rollout], vocab_size: int) -> str | None:
    """One look at the numbers of all rollouts together; which of them is wrong is found only if one
    is.
    """
    sequences = [
        (rollout.index, sequence) for rollout in rollouts for sequence in rollout.sequences
    ]
    tokens = [sequence.token_ids for _, sequence in sequences]
    own_prompts = [prompt for rollout in rollouts for prompt in recorded_prompts(rollout)]
    ids = np.concatenate([*tokens, *own_prompts])
    logprobs = np.concatenate([sequence.logprobs for _, sequence in sequences])
    if len(ids) and (ids.min() < 0 or ids.max() >= vocab_size):
        return f"a token id is outside the vocabulary of {vocab_size}"
    if not len(logprobs):
        return None
    lowest = float(logprobs.min())
    highest = float(logprobs.max())  # nan if any is nan
    # False for NaN too.
    # The smallest probability in float32 is 2^-149, whose logarithm is -103.3. A smaller one is 0
    # and is never sampled.
    min_logprob = -104.0
    if lowest >= min_logprob and highest <= MAX_LOGPROB:
        return None
    owner = np.repeat(
        [index for index, _ in sequences], [len(sequence.logprobs) for _, sequence in sequences]
    )
    invalid_index = int(np.argmin((logprobs >= min_logprob) & (logprobs <= MAX_LOGPROB)))
    value = float(logprobs[invalid_index])
    name = f"rollout {owner[invalid_index]}"
    if not np.isfinite(value):
        return f"{name} has a log-probability that is not finite"
    bound = "above 0" if value > 0 else f"below {min_logprob:g}, which is never sampled"
    return f"{name} has a log-probability of {value:g}, {bound}"


def _routing_defect(group: RolloutGroup, routing: RouterShape) -> str | None:
    """The codec has compared the number of tokens with the rollout."""
    defects = (
        (rollout.index, _experts_defect(sequence, routing))
        for rollout in group.rollouts
        for sequence in rollout.sequences
    )
    return next((f"rollout {index} {defect}" for index, defect in defects if defect), None)


def _experts_defect(sequence: Rollout | Branch, routing: RouterShape) -> str | None:
    chosen = sequence.routed_experts
    if chosen is None:
        missing_experts = "does not say which experts it used, and recipe.router_replay is true"
        return missing_experts if len(sequence.token_ids) else None
    _, layers, choices = chosen.shape
    if (layers, choices) != (routing.layers, routing.choices):
        return (
            f"has {choices} experts in each of {layers} layers, the model {routing.choices} in "
            f"{routing.layers}"
        )
    if chosen.size and (largest := int(chosen.max())) >= routing.experts:
        return f"was sent to expert {largest}, and a layer has {routing.experts}"
    return None
