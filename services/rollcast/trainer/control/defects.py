"""What keeps a group that came back from being used: it is held against the task it answers and against what can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollcast.rollouts.records import PromptTask, Purpose, Rollout, RolloutGroup
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.learner.batch import Routing
from rollcast.wire.version import PolicyVersion

LARGEST_LOGPROB = 1e-4
"""A log-softmax in float32 may round to a little above 0."""

LONGEST_SECONDS = 7 * 86_400.0
"""Between a group's begin and end. It may be handed over, outlive outages and weekends without a trainer, and end on a
clock that was set back or is another machine's; what lies beyond would make nonsense of the pacing."""


@dataclass(slots=True)
class DefectFinder:
    """`defect` with what it needs to know of the run."""

    history: SurvivingHistory
    vocab_size: int
    max_length: int
    """Tokens of prompt and completion."""
    newest: PolicyVersion
    """The newest version that was published; whoever publishes brings it up to date."""
    routing: Routing | None = None
    """What of each training token's experts is replayed; None = nothing."""

    def find(self, group: RolloutGroup, task: PromptTask) -> str | None:
        found = defect(
            group,
            task,
            newest=self.newest,
            history=self.history,
            vocab_size=self.vocab_size,
            max_length=self.max_length,
        )
        if found is None and self.routing is not None and group.purpose is Purpose.TRAIN:
            found = _routing_defect(group, self.routing)
        return found


def defect(
    group: RolloutGroup,
    task: PromptTask,
    *,
    newest: PolicyVersion,
    history: SurvivingHistory,
    vocab_size: int,
    max_length: int,
) -> str | None:
    """Return why this group must not be used, None if it may. Its numbers came over the network.

    `task`: as it was dispatched. `newest`: the newest version that was published. `history`: of the run. `max_length`:
    tokens of prompt and completion.
    """
    prompt = group.prompt_token_ids
    if not len(prompt):
        return "the prompt is empty"
    if group.purpose is not task.purpose:
        return f"it is of purpose {group.purpose}, the task of purpose {task.purpose}"
    if group.prompt_id != task.prompt_id:
        return f"it answers the prompt {group.prompt_id[:200]!r}, asked was {task.prompt_id!r}"
    if not np.array_equal(prompt, task.prompt_token_ids):
        return f"its prompt has other tokens than {task.prompt_id!r}"
    if len(group.rollouts) != task.num_rollouts:
        return f"it holds {len(group.rollouts)} rollouts, asked were {task.num_rollouts}"
    versions = {group.first_version} | group.versions
    if (latest := max(versions)) > newest:
        return f"it names the version {latest}, and the newest published is {newest}"
    for version in sorted(versions):
        if history.never_was(version):
            return f"it names the version {version}, and its incarnation began at a later step"
    seconds = group.finished_at - group.started_at
    if not abs(seconds) <= LONGEST_SECONDS:
        return f"it took {seconds:g} s, more than {LONGEST_SECONDS:g} s"
    for rollout in group.rollouts:
        if what := _rollout_defect(rollout, max_tokens=max_length - len(prompt)):
            return f"rollout {rollout.index} {what}"
    tokens = np.concatenate([prompt, *(rollout.token_ids for rollout in group.rollouts)])
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        return f"a token id is outside the vocabulary of {vocab_size}"
    return None


def _routing_defect(group: RolloutGroup, routing: Routing) -> str | None:
    """The codec has held the number of tokens against the rollout."""
    for rollout in group.rollouts:
        chosen = rollout.routed_experts
        if chosen is None:
            return f"rollout {rollout.index} does not say which experts it used, and recipe.router_replay is true"
        _, layers, choices = chosen.shape
        if (layers, choices) != (routing.layers, routing.choices):
            return (
                f"rollout {rollout.index} has {choices} experts in each of {layers} layers, the model "
                f"{routing.choices} in {routing.layers}"
            )
        if chosen.size and (largest := int(chosen.max())) >= routing.experts:
            return f"rollout {rollout.index} was sent to expert {largest}, and a layer has {routing.experts}"
    return None


def _rollout_defect(rollout: Rollout, *, max_tokens: int) -> str | None:
    length = len(rollout.token_ids)
    if len(rollout.logprobs) != length:
        return f"has {length} tokens and {len(rollout.logprobs)} log-probabilities"
    if length > max_tokens:
        return f"has {length} tokens, at most {max_tokens} are allowed behind its prompt"
    if any(not 0 <= start <= end <= length for start, end in rollout.loss_masked):
        return f"has a loss-mask range outside its {length} tokens"
    if not np.isfinite(rollout.logprobs).all():
        return "has a log-probability that is not finite"
    if length and (largest := float(rollout.logprobs.max())) > LARGEST_LOGPROB:
        return f"has a log-probability of {largest:g}, above 0"
    if not 0.0 <= rollout.reward <= 1.0:
        return f"has a reward of {rollout.reward:g}, not in [0, 1]"
    return None
