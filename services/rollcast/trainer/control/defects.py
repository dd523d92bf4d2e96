"""Why a group that came back must not be used: it is compared with the task it answers, and its numbers with bounds."""

from dataclasses import dataclass

import numpy as np

from rollcast.rollouts.base import MAX_FAILURES
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup, Sampling
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.rollout_defects import MAX_GROUP_SECONDS, rollouts_defect
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.learner.batch import Routing
from rollcast.wire.version import PolicyVersion


@dataclass(slots=True)
class DefectFinder:
    """`defect` for one run."""

    state: TrainerState
    """Its history, and the newest version that was published."""
    vocab_size: int
    max_length: int
    """Tokens of prompt and completion."""
    routing: Routing | None = None
    """Shape of the expert choices that a training group must bring; None = the recipe replays none."""

    def find(self, group: RolloutGroup, task: PromptTask) -> str | None:
        found = defect(
            group,
            task,
            newest=self.state.published,
            history=self.state.history,
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

    `task`: as it was dispatched, by the incarnation that the group names if that one did. `newest`: the newest version
    that was published. `history`: of the run. `max_length`: tokens of prompt and completion.
    """
    if found := _task_defect(group, task):
        return found
    versions = group.versions
    if (latest := max(versions | {group.first_version})) > newest:
        return f"it names the version {latest}, and the newest published is {newest}"
    for version in sorted(versions | {group.first_version}):
        if history.never_was(version):
            return f"it names the version {version}, and its incarnation began at a later step"
    if group.first_version != min(versions, default=group.first_version):
        return f"it names {group.first_version} as its oldest version, and its oldest token is of {min(versions)}"
    seconds = group.finished_at - group.started_at
    if not abs(seconds) <= MAX_GROUP_SECONDS:
        return f"it took {seconds:g} s, more than {MAX_GROUP_SECONDS:g} s"
    return rollouts_defect(group.rollouts, task, vocab_size=vocab_size, max_length=max_length)


def _task_defect(group: RolloutGroup, task: PromptTask) -> str | None:
    """Fields that a generator copies from its task must be equal."""
    prompt = group.prompt_token_ids
    if not len(prompt):
        return "the prompt is empty"
    if group.purpose is not task.purpose:
        return f"it is of purpose {group.purpose}, the task of purpose {task.purpose}"
    if group.prompt_id != task.prompt_id:
        return f"it answers the prompt {group.prompt_id[:200]!r}, asked was {task.prompt_id!r}"
    if group.incarnation != task.incarnation:
        return f"it names the incarnation {group.incarnation}, which never dispatched this task"
    if group.dataset != task.dataset:
        return f"it is of the data set {group.dataset[:200]!r}, the task of {task.dataset!r}"
    if not np.array_equal(prompt, task.prompt_token_ids):
        return f"its prompt has other tokens than {task.prompt_id!r}"
    if _as_sent(group.sampling) != _as_sent(task.sampling):
        return f"it was sampled with {group.sampling}, asked was {task.sampling}"
    if group.length != task.length:
        return f"its length budget is {str(group.length)[:200]}, asked was {str(task.length)[:200]}"
    if group.eval_step not in (0, task.eval_step):  # 0 = not stated
        return f"it names the evaluation of step {group.eval_step}, asked was {task.eval_step}"
    if not 0 <= group.attempt < MAX_FAILURES:
        return f"it is attempt {group.attempt}, and a task is given up after {MAX_FAILURES}"
    if len(group.rollouts) != task.num_rollouts:
        return f"it holds {len(group.rollouts)} rollouts, asked were {task.num_rollouts}"
    return None


def _as_sent(sampling: Sampling) -> tuple[float, float, int, int]:
    """Temperature and top_p travel as float32."""
    return float(np.float32(sampling.temperature)), float(np.float32(sampling.top_p)), sampling.top_k, sampling.seed


def _routing_defect(group: RolloutGroup, routing: Routing) -> str | None:
    """The codec has compared the number of tokens with the rollout."""
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
