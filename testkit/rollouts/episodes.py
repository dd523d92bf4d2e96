"""Random rollouts of several turns, sound in every respect."""

from __future__ import annotations

import numpy as np

from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    EpisodeTask,
    GradingStatus,
    KvMark,
    Leg,
    LegKind,
    Rollout,
    StopReason,
    Turn,
    VersionSpan,
)
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION

EPISODE_TASK = EpisodeTask(
    "world", '[{"role": "user", "content": "go"}]', max_turns=16, max_seconds=60.0
)


def make_episode(
    rng: np.random.Generator,
    index: int = 0,
    *,
    turns: tuple[int, ...] = (2, 1),
    reward: float = 1.0,
    vocab: int = 100,
    version: PolicyVersion = VERSION,
    later: PolicyVersion | None = None,
    end: EpisodeEnd = EpisodeEnd.ANSWERED,
    has_trailing: bool = False,
) -> Rollout:
    """An episode with `turns[n]` turns in its n-th sequence. `has_trailing`: each ends in given
    tokens.

    `later`: the version of the second half of each sequence. None = the one after `version`.
    """
    collected_turns: list[Turn] = []
    versions = (version, later or PolicyVersion(version.incarnation, version.step + 1))
    sequences = [
        _sequence(rng, number, count, collected_turns, vocab, versions, has_trailing=has_trailing)
        for number, count in enumerate(turns)
    ]
    first = sequences[0]
    is_failed = end is EpisodeEnd.FAILED
    is_truncated = end in (EpisodeEnd.TOKENS, EpisodeEnd.TURNS, EpisodeEnd.SECONDS)
    status = GradingStatus.OK if reward > 0 else GradingStatus.WRONG
    return Rollout(
        index=index,
        token_ids=first.token_ids,
        logprobs=first.logprobs,
        version_spans=first.version_spans,
        loss_masked=first.loss_masked,
        legs=first.legs,
        kv_marks=first.kv_marks,
        stop_reason=StopReason.LENGTH if is_truncated else StopReason.END,
        reward=0.0 if is_failed else reward,
        grading_status=GradingStatus.ERROR if is_failed else status,
        episode=Episode(
            "world",
            prompt_token_ids=first.prompt_token_ids,
            turns=tuple(collected_turns),
            branches=tuple(sequences[1:]),
            end=end,
            reason="environment world: its process died" if is_failed else "",
            environment_seconds=1.5,
            sampling_seconds=2.5,
        ),
    )


def _sequence(
    rng: np.random.Generator,
    number: int,
    num_turns: int,
    collected_turns: list[Turn],
    vocab: int,
    versions: tuple[PolicyVersion, PolicyVersion],
    *,
    has_trailing: bool,
) -> Branch:
    """Turns of 1 to 5 sampled tokens with 1 to 3 given ones after each, but after the last only if
    asked.
    """
    legs: list[Leg] = []
    position = 0
    for turn in range(num_turns):
        end = position + int(rng.integers(1, 6))
        legs.append(Leg(LegKind.ANSWER, position, end))
        collected_turns.append(
            Turn(
                number,
                position,
                end,
                reward=float(rng.integers(0, 4)) / 4,
                tool_calls=1,
                environment_seconds=0.5,
            )
        )
        position = end
        if turn + 1 < num_turns or has_trailing:
            given_end = position + int(rng.integers(1, 4))
            legs.append(Leg(LegKind.GIVEN, position, given_end))
            position = given_end
    masked = tuple((leg.start, leg.end) for leg in legs if leg.kind is LegKind.GIVEN)
    logprobs = -rng.random(position, dtype=np.float32) - np.float32(0.01)
    for start, end in masked:
        logprobs[start:end] = 0
    half = position // 2
    version, later = versions
    spans = (VersionSpan(version, 0, half), VersionSpan(later, half, position)) if half else ()
    return Branch(
        prompt_token_ids=rng.integers(0, vocab, int(rng.integers(1, 9)), dtype=np.int32),
        token_ids=rng.integers(0, vocab, position, dtype=np.int32),
        logprobs=logprobs,
        version_spans=spans or (VersionSpan(version, 0, position),),
        loss_masked=masked,
        legs=tuple(legs),
        kv_marks=(KvMark(half, 1, later),) if half else (),
    )
