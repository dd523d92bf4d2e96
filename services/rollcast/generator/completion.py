"""A completion while it is sampled: legs, version spans, KV marks, and the next request.

    thinking ----(cut reached, no marker)----> phrase -> answer -> END or LENGTH
        |  `----(marker written in time)----> more of the same leg ------^
        `----(the model ends its text)-------------------------------> END

Everything is a function of the task and the tokens so far, so that a partial rollout continues at its last token.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.records import KvMark, Leg, LegKind, PromptTask, Rollout, RoutedExperts, StopReason, VersionSpan
from rollcast.wire.version import PolicyVersion


class NextLeg(NamedTuple):
    """The next request to the engine."""

    max_tokens: int
    force_phrase: bool
    """Whether the phrase is forced before it."""


Decode = Callable[[list[int]], str]
"""Token ids to text, special tokens included."""


class Completion:
    """Tokens of one rollout so far."""

    def __init__(self, task: PromptTask, index: int, decode: Decode, start: Rollout | None = None) -> None:
        self._decode = decode
        self.task = task
        self.index = index
        start = start or Rollout(index, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))
        self.token_ids: list[int] = start.token_ids.tolist()
        self.logprobs: list[float] = start.logprobs.tolist()
        self.version_spans = list(start.version_spans)
        self.legs = list(start.legs)
        self.loss_masked = list(start.loss_masked)
        self.kv_marks = list(start.kv_marks)
        self.stop_reason = start.stop_reason
        self.interrupted = start.interrupted
        self.preemptions = start.preemptions
        self.routed_experts = start.routed_experts
        self._cut = self._cut_position()

    @property
    def text_token_ids(self) -> list[int]:
        """The tokens without the end-of-text token, which is not part of the answer's text."""
        return self.token_ids[: len(self.token_ids) - (self.stop_reason is StopReason.END)]

    @property
    def can_have_two_legs(self) -> bool:
        """Whether it may be cut, so that a second leg hits its own KV blocks."""
        return self._cut is not None

    @property
    def num_routed(self) -> int:
        """Tokens of prompt and completion whose experts are known."""
        return 0 if self.routed_experts is None else len(self.routed_experts)

    @property
    def versions(self) -> set[PolicyVersion]:
        return {span.version for span in self.version_spans}

    def next_leg(self) -> NextLeg | None:
        """The next request; None = the budget is used up."""
        length = self.task.length
        total = len(self.token_ids)
        if self.interrupted:
            answer_start = self.legs[-1].start if self.legs[-1].kind is LegKind.ANSWER else total
            remaining = min(answer_start + length.answer_tokens, length.max_tokens) - total
            return NextLeg(remaining, force_phrase=False) if remaining > 0 else None
        if self._cut is None or (total >= self._cut and self._ended_thinking()):
            remaining = length.max_tokens - total
            return NextLeg(remaining, force_phrase=False) if remaining > 0 else None
        if total < self._cut:
            return NextLeg(self._cut - total, force_phrase=False)
        answer_tokens = min(length.answer_tokens, length.max_tokens - total - len(length.phrase))
        return NextLeg(answer_tokens, force_phrase=True) if answer_tokens > 0 else None

    def force_phrase(self, version: PolicyVersion) -> None:
        """Append the phrase that ends thinking. It is not sampled, so it has no loss and log-prob 0."""
        start = len(self.token_ids)
        end = start + len(self.task.length.phrase)
        self.token_ids += self.task.length.phrase
        self.logprobs += [0.0] * (end - start)
        self._extend_span(version, start, end)
        self.legs.append(Leg(LegKind.PHRASE, start, end))
        self.loss_masked.append((start, end))
        self.interrupted = True

    def append(self, token_ids: list[int], logprobs: list[float], spans: list[VersionSpan]) -> None:
        """Add sampled tokens; `spans` count from the first of them."""
        assert len(token_ids) == len(logprobs)
        assert (spans[-1].end if spans else 0) == len(token_ids), (spans, len(token_ids))
        if not token_ids:
            return
        start = len(self.token_ids)
        self.token_ids += token_ids
        self.logprobs += logprobs
        for span in spans:
            self._extend_span(span.version, start + span.start, start + span.end)
        kind = LegKind.ANSWER if self.interrupted else LegKind.THINKING
        if self.legs and self.legs[-1].kind is kind:
            self.legs[-1] = Leg(kind, self.legs[-1].start, len(self.token_ids))
        else:
            self.legs.append(Leg(kind, start, len(self.token_ids)))

    def record_experts(self, start: int, experts: RoutedExperts) -> None:
        """Record the experts of the tokens from `start` on, prompt included, as they were computed last."""
        assert start <= self.num_routed
        known = self.routed_experts
        self.routed_experts = experts if known is None else np.concatenate([known[:start], experts])

    def mark_rebuild(self, position: int, kept: int) -> None:
        """KV from `kept` on was rebuilt before the token at `position`, by the version that sampled it.

        Ignored before the first token, because no token has seen other KV.
        """
        if 0 < position < len(self.token_ids):
            version = next(span.version for span in self.version_spans if span.start <= position < span.end)
            self.kv_marks.append(KvMark(position, kept, version))
            self.kv_marks.sort(key=lambda mark: mark.position)

    def rollout(self) -> Rollout:
        """The record: partial unless the completion has ended."""
        return Rollout(
            index=self.index,
            token_ids=np.asarray(self.token_ids, dtype=np.int32),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            version_spans=tuple(self.version_spans),
            loss_masked=tuple(self.loss_masked),
            legs=tuple(self.legs),
            kv_marks=tuple(self.kv_marks),
            partial=self.stop_reason is StopReason.RUNNING,
            stop_reason=self.stop_reason,
            interrupted=self.interrupted,
            preemptions=self.preemptions,
            routed_experts=self.routed_experts,
        )

    def _cut_position(self) -> int | None:
        length = self.task.length
        if not length.interrupt_from:
            return None
        return interruption_position(
            seed=length.seed,
            sequence=self.task.sequence,
            rollout=self.index,
            low=length.interrupt_from,
            high=length.interrupt_to,
        )

    def _ended_thinking(self) -> bool:
        """Whether the model wrote the end-of-thinking marker before the cut."""
        # Compares text, because the marker may be tokenised in several ways: `>` and a line break may be one token.
        marker = self.task.length.end_of_thinking
        return bool(marker) and self._decode(list(marker)) in self._decode(self.token_ids[: self._cut])

    def _extend_span(self, version: PolicyVersion, start: int, end: int) -> None:
        if self.version_spans and self.version_spans[-1].version == version:
            self.version_spans[-1] = VersionSpan(version, self.version_spans[-1].start, end)
        else:
            self.version_spans.append(VersionSpan(version, start, end))
