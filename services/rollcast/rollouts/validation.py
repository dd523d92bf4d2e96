"""Checks of a task and a group, whoever made them; the trainer relies on them without checking again."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rollcast.config.tasks import MAX_REFERENCE_CHARACTERS
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import PromptTask, Rollout, RolloutGroup, StopReason

MAX_ROLLOUTS = 4096
MAX_TOKENS = 4 << 20
"""Tokens of one prompt or completion."""
MAX_SPANS = 65_536
"""Version spans, legs, masks or marks of one rollout."""
MAX_CHOICES = 4_096
"""Experts that one token is sent to, over all layers."""
MAX_TEXT_CHARACTERS = 1 << 20
"""Characters of a prompt's id, or of the name of a data set or verifier."""
MAX_OWNER_CHARACTERS = 512
"""Characters of a generator's name; the scripts and the records of :inflight take no longer one."""


def check_task(task: PromptTask) -> None:
    """Raises CodecError if the task contradicts itself."""
    _check_texts(dataset=task.dataset, prompt_id=task.prompt_id, verifier=task.verifier)
    _require(
        len(task.reference) <= MAX_REFERENCE_CHARACTERS,
        f"reference: {len(task.reference)} characters, more than {MAX_REFERENCE_CHARACTERS}",
    )
    _check_token_ids("prompt", task.prompt_token_ids)
    _require(1 <= task.num_rollouts <= MAX_ROLLOUTS, f"num_rollouts = {task.num_rollouts}, not in 1..{MAX_ROLLOUTS}")
    _require(len(task.rollouts) <= task.num_rollouts, f"{len(task.rollouts)} rollouts for {task.num_rollouts} places")
    indices = {rollout.index for rollout in task.rollouts}
    _require(len(indices) == len(task.rollouts), "two rollouts have one index")
    _require(not indices or max(indices) < task.num_rollouts, "a rollout's index is beyond num_rollouts")
    for rollout in task.rollouts:
        _check_rollout(rollout, len(task.prompt_token_ids))
    _require(
        task.first_version is not None or not any(rollout.num_tokens for rollout in task.rollouts),
        "rollouts were handed back without their first version",
    )


def check_group(group: RolloutGroup) -> None:
    """Raises CodecError if the group contradicts itself, is unfinished, or is older than it says."""
    _check_texts(dataset=group.dataset, prompt_id=group.prompt_id)
    owner = len(group.generator)
    _require(owner <= MAX_OWNER_CHARACTERS, f"generator: {owner} characters, more than {MAX_OWNER_CHARACTERS}")
    _check_token_ids("prompt", group.prompt_token_ids)
    _require(1 <= len(group.rollouts) <= MAX_ROLLOUTS, f"{len(group.rollouts)} rollouts, not 1..{MAX_ROLLOUTS}")
    indices = sorted(rollout.index for rollout in group.rollouts)
    _require(indices == list(range(len(indices))), "the rollouts' indices are not 0..G-1")
    _require(math.isfinite(group.started_at) and math.isfinite(group.finished_at), "a time is not finite")
    for rollout in group.rollouts:
        _check_rollout(rollout, len(group.prompt_token_ids))
        _require(not rollout.partial, f"rollout {rollout.index} is partial")
        _require(rollout.stop_reason is not StopReason.RUNNING, f"rollout {rollout.index} has not ended")
        oldest = rollout.oldest_version
        _require(
            oldest is None or group.first_version <= oldest,
            f"rollout {rollout.index} holds tokens of {oldest}, older than the group's first version",
        )


def _check_rollout(rollout: Rollout, num_prompt_tokens: int) -> None:
    name = f"rollout {rollout.index}"
    length = rollout.num_tokens
    _check_token_ids(name, rollout.token_ids)
    _require(len(rollout.logprobs) == length, f"{name}: {length} tokens, {len(rollout.logprobs)} log-probabilities")
    _require(bool(np.isfinite(rollout.logprobs).all()), f"{name}: a log-probability is not finite")
    _require(math.isfinite(rollout.reward), f"{name}: the reward is not finite")
    _require(math.isfinite(rollout.grading_seconds), f"{name}: the grading time is not finite")
    counts = map(len, (rollout.version_spans, rollout.loss_masked, rollout.legs, rollout.kv_marks))
    _require(max(counts) <= MAX_SPANS, f"{name}: more than {MAX_SPANS} spans")
    end = 0
    for span in rollout.version_spans:
        _require(span.start == end < span.end, f"{name}: version spans do not follow one another")
        end = span.end
    _require(end == length, f"{name}: version spans cover {end} of {length} tokens")
    _check_ranges(f"{name}: loss mask", rollout.loss_masked, length)
    _check_ranges(f"{name}: legs", ((leg.start, leg.end) for leg in rollout.legs), length)
    _require(all(mark.position <= length for mark in rollout.kv_marks), f"{name}: a KV mark lies beyond its end")
    if rollout.routed_experts is not None:
        inputs = num_prompt_tokens + length - 1
        rows = len(rollout.routed_experts)
        fits = rows <= inputs if rollout.partial else rows == inputs  # a forced phrase at the end has no choices yet
        _require(fits, f"{name}: experts of {rows} tokens, and {inputs} went through the model")


def _check_ranges(name: str, ranges: Iterable[tuple[int, int]], length: int) -> None:
    last = 0
    for start, end in ranges:
        _require(last <= start <= end <= length, f"{name}: [{start}, {end}) overlaps another or leaves [0, {length})")
        last = end


def _check_token_ids(name: str, token_ids: NDArray[np.int32]) -> None:
    _require(token_ids.ndim == 1 and len(token_ids) <= MAX_TOKENS, f"{name}: more than {MAX_TOKENS} tokens")
    _require(len(token_ids) == 0 or int(token_ids.min()) >= 0, f"{name}: a token id is negative")


def _check_texts(**texts: str) -> None:
    for name, text in texts.items():
        _require(len(text) <= MAX_TEXT_CHARACTERS, f"{name}: {len(text)} characters, more than {MAX_TEXT_CHARACTERS}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CodecError(message)
