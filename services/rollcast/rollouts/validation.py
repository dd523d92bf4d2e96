"""Checks of a task and a group, whoever made them; the trainer relies on them without checking
again.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rollcast.config.tasks import MAX_REFERENCE_CHARACTERS
from rollcast.rollouts.environment_metrics import bound_metrics
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    EpisodeTask,
    LegKind,
    PromptTask,
    Rollout,
    RolloutGroup,
    StopReason,
    TokenIds,
    loss_mask,
)

MAX_ROLLOUTS = 4096
MAX_TOKENS = 4 << 20
"""Tokens of one prompt or completion."""
MAX_TURNS = 65_536
"""Turns of one episode, and its branches: each turn may begin one. `recipe.episodes.max_turns` is
at most 10,000."""
MAX_TEXT_CHARACTERS = 1 << 20
"""Characters of a prompt's id, of the name of a data set, verifier or environment, or of why an
environment failed."""


def check_task(task: PromptTask) -> None:
    """Raises CodecError if the task contradicts itself."""
    _check_texts(dataset=task.dataset, prompt_id=task.prompt_id, verifier=task.verifier)
    _check_count("reference", len(task.reference), MAX_REFERENCE_CHARACTERS, "characters")
    _check_token_ids("prompt", task.prompt_token_ids)
    _require(
        1 <= task.num_rollouts <= MAX_ROLLOUTS,
        f"num_rollouts = {task.num_rollouts}, not in 1..{MAX_ROLLOUTS}",
    )
    _require(
        len(task.rollouts) <= task.num_rollouts,
        f"{len(task.rollouts)} rollouts for {task.num_rollouts} places",
    )
    indices = {rollout.index for rollout in task.rollouts}
    _require(len(indices) == len(task.rollouts), "two rollouts have one index")
    _require(
        not indices or max(indices) < task.num_rollouts, "a rollout's index is beyond num_rollouts"
    )
    if task.episode is not None:
        _check_episode_task(task.episode)
    for rollout in task.rollouts:
        _check_rollout(rollout, task.prompt_token_ids)
        is_episode = rollout.episode is not None
        _require(
            is_episode is (task.episode is not None),
            f"of rollout {rollout.index} and its task only one is an episode",
        )
    _require(
        task.first_version is not None or not any(rollout.num_tokens for rollout in task.rollouts),
        "rollouts were handed back without their first version",
    )


def check_group(group: RolloutGroup) -> None:
    """Raises CodecError if the group contradicts itself, is unfinished,
    or is older than it says.
    """
    _check_texts(dataset=group.dataset, prompt_id=group.prompt_id)
    # 512: the scripts and the records of :inflight take no longer name of a generator.
    _check_count("generator", len(group.generator), 512, "characters")
    _check_token_ids("prompt", group.prompt_token_ids)
    _require(
        1 <= len(group.rollouts) <= MAX_ROLLOUTS,
        f"{len(group.rollouts)} rollouts, not 1..{MAX_ROLLOUTS}",
    )
    indices = sorted(rollout.index for rollout in group.rollouts)
    _require(indices == list(range(len(indices))), "the rollouts' indices are not 0..G-1")
    _require(
        math.isfinite(group.started_at) and math.isfinite(group.finished_at), "a time is not finite"
    )
    environments = {
        rollout.episode.environment if rollout.episode else None for rollout in group.rollouts
    }
    _require(len(environments) == 1, "its rollouts are not of one environment")
    for rollout in group.rollouts:
        _check_rollout(rollout, group.prompt_token_ids)
        _require(not rollout.partial, f"rollout {rollout.index} is partial")
        is_running = rollout.episode is not None and rollout.episode.end is EpisodeEnd.RUNNING
        has_ended = rollout.stop_reason is not StopReason.RUNNING and not is_running
        _require(has_ended, f"rollout {rollout.index} has not ended")
        oldest = rollout.oldest_version
        _require(
            oldest is None or group.first_version <= oldest,
            f"rollout {rollout.index} holds tokens of {oldest}, older than the group's first "
            "version",
        )


def _check_rollout(rollout: Rollout, prompt: TokenIds) -> None:
    """`prompt`: of the task."""
    name = f"rollout {rollout.index}"
    _require(math.isfinite(rollout.reward), f"{name}: the reward is not finite")
    _require(math.isfinite(rollout.grading_seconds), f"{name}: the grading time is not finite")
    if rollout.episode is not None:
        _check_episode(name, rollout, rollout.episode)
    for number, sequence in enumerate(rollout.sequences):
        name_of_it = f"{name}, branch {number}" if number else name
        num_prompt_tokens = len(rollout.sequence_prompt(sequence, prompt))
        _check_sequence(name_of_it, sequence, num_prompt_tokens, is_partial=rollout.partial)


def _check_sequence(
    name: str, sequence: Rollout | Branch, num_prompt_tokens: int, *, is_partial: bool
) -> None:
    """One token sequence: a rollout's own tokens, or a branch of its episode."""
    length = len(sequence.token_ids)
    logprobs = sequence.logprobs
    _check_token_ids(name, sequence.token_ids)
    _require(len(logprobs) == length, f"{name}: {length} tokens, {len(logprobs)} log-probabilities")
    _require(bool(np.isfinite(logprobs).all()), f"{name}: a log-probability is not finite")
    counts = map(
        len, (sequence.version_spans, sequence.loss_masked, sequence.legs, sequence.kv_marks)
    )
    # Version spans, legs, masks or marks of one rollout.
    max_spans = 65_536
    _require(max(counts) <= max_spans, f"{name}: more than {max_spans} spans")
    end = 0
    for span in sequence.version_spans:
        _require(span.start == end < span.end, f"{name}: version spans do not follow one another")
        end = span.end
    _require(end == length, f"{name}: version spans cover {end} of {length} tokens")
    _check_ranges(f"{name}: loss mask", sequence.loss_masked, length)
    _check_ranges(f"{name}: legs", ((leg.start, leg.end) for leg in sequence.legs), length)
    _check_given(name, sequence)
    _require(
        all(mark.position <= length for mark in sequence.kv_marks),
        f"{name}: a KV mark lies beyond its end",
    )
    if sequence.routed_experts is not None:
        inputs = num_prompt_tokens + length - 1
        rows = len(sequence.routed_experts)
        fits = (
            rows <= inputs if is_partial else rows == inputs
        )  # a forced phrase at the end has no choices yet
        _require(fits, f"{name}: experts of {rows} tokens, and {inputs} went through the model")


def _check_given(name: str, sequence: Rollout | Branch) -> None:
    """Given tokens have no log-probability and no loss."""
    given_legs = [leg for leg in sequence.legs if leg.kind is LegKind.GIVEN]
    if not given_legs:
        return
    has_loss = loss_mask(sequence)
    for leg in given_legs:
        given_span = f"{name}: given tokens [{leg.start}, {leg.end})"
        _require(not has_loss[leg.start : leg.end].any(), f"{given_span} carry loss")
        _require(
            not sequence.logprobs[leg.start : leg.end].any(), f"{given_span} have log-probabilities"
        )


def _check_episode(name: str, rollout: Rollout, episode: Episode) -> None:
    _check_texts(environment=episode.environment, reason=episode.reason)
    _check_count(name, len(episode.turns), MAX_TURNS, "turns")
    _check_count(name, len(episode.branches), MAX_TURNS, "branches")
    is_running = episode.end is EpisodeEnd.RUNNING
    _require(is_running or not rollout.partial, f"{name}: partial, and its episode has ended")
    if episode.end is EpisodeEnd.FAILED:
        _require(not rollout.has_verdict, f"{name}: its environment failed, and it has a verdict")
    for activity, seconds in (
        ("environment", episode.environment_seconds),
        ("sampling", episode.sampling_seconds),
    ):
        _require(0 <= seconds < math.inf, f"{name}: the {activity}'s time is {seconds:g} s")
    num_left_out = len(episode.metrics) - len(bound_metrics(episode.metrics))
    _require(num_left_out == 0, f"{name}: metrics out of bounds: {num_left_out}")
    if episode.prompt_token_ids is not None:
        _check_token_ids(f"{name}: prompt", episode.prompt_token_ids)
    for branch in episode.branches:
        _check_token_ids(f"{name}: a branch's prompt", branch.prompt_token_ids)
        _require(len(branch.prompt_token_ids) > 0, f"{name}: a branch has no prompt")
    _check_turns(name, rollout, episode)


def _check_turns(name: str, rollout: Rollout, episode: Episode) -> None:
    """Turns are inside their sequences, in order, and no token belongs to two."""
    lengths = [len(sequence.token_ids) for sequence in rollout.sequences]
    ends = [0] * len(lengths)
    for number, turn in enumerate(episode.turns):
        where = f"{name}: turn {number}"
        in_a_sequence = turn.sequence < len(lengths)
        _require(in_a_sequence, f"{where} is of sequence {turn.sequence}, of {len(lengths)}")
        length = lengths[turn.sequence]
        _require(
            ends[turn.sequence] <= turn.start <= turn.end <= length,
            f"{where}, [{turn.start}, {turn.end}), overlaps another or leaves [0, {length})",
        )
        _require(math.isfinite(turn.reward), f"{where}: the reward is not finite")
        seconds = turn.environment_seconds
        _require(0 <= seconds < math.inf, f"{where}: the environment's time is {seconds:g} s")
        ends[turn.sequence] = turn.end


def _check_episode_task(episode: EpisodeTask) -> None:
    _check_texts(environment=episode.environment)
    _require(episode.environment != "", "the environment has no name")
    for name, text in (("messages", episode.messages), ("answer", episode.answer)):
        _check_count(name, len(text), MAX_REFERENCE_CHARACTERS, "characters")
    _require(
        1 <= episode.max_turns <= MAX_TURNS,
        f"max_turns = {episode.max_turns}, not in 1..{MAX_TURNS}",
    )
    seconds = episode.max_seconds
    _require(math.isfinite(seconds) and seconds > 0, f"max_seconds = {seconds} is not a duration")


def _check_ranges(name: str, ranges: Iterable[tuple[int, int]], length: int) -> None:
    last = 0
    for start, end in ranges:
        _require(
            last <= start <= end <= length,
            f"{name}: [{start}, {end}) overlaps another or leaves [0, {length})",
        )
        last = end


def _check_token_ids(name: str, token_ids: NDArray[np.int32]) -> None:
    _require(
        token_ids.ndim == 1 and len(token_ids) <= MAX_TOKENS,
        f"{name}: more than {MAX_TOKENS} tokens",
    )
    _require(len(token_ids) == 0 or int(token_ids.min()) >= 0, f"{name}: a token id is negative")


def _check_texts(**texts: str) -> None:
    for name, text in texts.items():
        _check_count(name, len(text), MAX_TEXT_CHARACTERS, "characters")


def _check_count(name: str, count: int, maximum: int, unit: str) -> None:
    _require(count <= maximum, f"{name}: {count} {unit}, more than {maximum}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CodecError(message)
