"""Reads the groups of episodes that came over Redis as an accountant: every token is of a turn or
was given.

The decoder is the product's; its checks and those of the trainer are not used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.rollouts.codec import decode_group, decode_task
from rollcast.rollouts.records import Branch, EpisodeEnd, LegKind, PromptTask, Rollout, RolloutGroup
from testkit.system.audit import settled_groups
from testkit.system.recorder import RecordedGroup


def check_groups(recorded: Iterable[RecordedGroup], lines: list[dict[str, Any]]) -> Counter[str]:
    """Every recorded group of episodes is whole, and every settled task is one of those.

    `lines`: of tasks.jsonl. Returns counts: groups, episodes, turns, sequences, sampled and given
    tokens.
    """
    counts: Counter[str] = Counter()
    came: defaultdict[int, list[Mapping[str, int]]] = defaultdict(list)
    for recorded_group in recorded:
        group, task = decode_group(recorded_group.group), decode_task(recorded_group.task)
        assert len(group.rollouts) == task.num_rollouts
        counts["groups"] += 1
        for rollout in group.rollouts:
            counts.update(check_episode(rollout, task))
        came[group.sequence].append(_ends(group))
    for line in settled_groups(lines):
        (sequence,) = line["tasks"]
        if sequence in came:  # else the recorder was late
            assert line["episodes"] in came[sequence], (
                f"task {sequence}: {line['episodes']} of {came[sequence]}"
            )
            counts["settled groups compared"] += 1
    return counts


def check_episode(rollout: Rollout, task: PromptTask) -> Counter[str]:
    """Check one episode. Returns counts."""
    episode = rollout.episode
    assert episode is not None
    assert task.episode is not None
    assert len(episode.turns) <= task.episode.max_turns
    if episode.end is EpisodeEnd.FAILED:
        assert episode.reason.startswith(f"environment {episode.environment}: ")
        assert not rollout.has_verdict, "a failed environment is no wrong answer"
    else:
        assert episode.end is not EpisodeEnd.RUNNING
        assert episode.reason == ""
        assert rollout.has_verdict
    counts = Counter(episodes=1, turns=len(episode.turns), sequences=len(rollout.sequences))
    for number, sequence in enumerate(rollout.sequences):
        turns = [(turn.start, turn.end) for turn in episode.turns if turn.sequence == number]
        assert turns or number == 0, "a branch without a turn"
        counts.update(_check_tokens(sequence, turns))
    return counts


def _check_tokens(sequence: Rollout | Branch, turns: list[tuple[int, int]]) -> Counter[str]:
    """Every token is of one turn, with a log-prob and loss, or was given, with neither; and has one
    version.
    """
    size = len(sequence.token_ids)
    given = [(leg.start, leg.end) for leg in sequence.legs if leg.kind is LegKind.GIVEN]
    is_sampled = _count_spans(turns, size) == 1
    assert (_count_spans([*turns, *given], size) == 1).all(), "a token of no turn, or of two"
    has_loss = _count_spans(sequence.loss_masked, size) == 0
    assert (has_loss == is_sampled).all(), "loss on what was given, or none on what was sampled"
    assert ((sequence.logprobs != 0) == is_sampled).all(), (
        "a log-prob of what was given, or none of what was sampled"
    )
    versions = [(span.start, span.end) for span in sequence.version_spans]
    assert (_count_spans(versions, size) == 1).all(), "a token of no version, or of two"
    return Counter(
        {"sampled tokens": int(is_sampled.sum()), "given tokens": int((~is_sampled).sum())}
    )


def _count_spans(spans: Iterable[tuple[int, int]], size: int) -> NDArray[np.int64]:
    """How many of the spans each token is in."""
    counts = np.zeros(size, dtype=np.int64)
    for start, end in spans:
        counts[start:end] += 1
    return counts


def _ends(group: RolloutGroup) -> dict[str, int]:
    return dict(Counter(str(rollout.episode.end) for rollout in group.rollouts if rollout.episode))
