"""The first tokens of a sequence, as if the others had not been sampled."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from rollcast.rollouts.records import Leg, Rollout, VersionSpan

Span = TypeVar("Span", VersionSpan, Leg)


def truncate_rollout(rollout: Rollout, end: int, num_prompt_tokens: int) -> Rollout:
    """Tokens [0, end) with their spans, legs and marks."""
    experts = rollout.routed_experts
    return replace(
        rollout,
        token_ids=rollout.token_ids[:end],
        logprobs=rollout.logprobs[:end],
        version_spans=_spans_up_to(rollout.version_spans, end),
        loss_masked=tuple(
            (start, min(stop, end)) for start, stop in rollout.loss_masked if start < end
        ),
        legs=_spans_up_to(rollout.legs, end),
        kv_marks=tuple(mark for mark in rollout.kv_marks if mark.position < end),
        # The experts of a token are recorded when it is computed, and the last token never is.
        routed_experts=None if experts is None else experts[: num_prompt_tokens + end - 1],
    )


def _spans_up_to(spans: Iterable[Span], end: int) -> tuple[Span, ...]:
    return tuple(replace(span, end=min(span.end, end)) for span in spans if span.start < end)
