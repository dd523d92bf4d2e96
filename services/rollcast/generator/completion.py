"""A completion while it is sampled: legs, version spans, KV marks, and the next request.

    thinking ----(cut reached, no marker)----> phrase -> answer -> END or LENGTH
        |  `----(marker written in time)----> more of the same leg ------^
        `----(the model ends its text)-------------------------------> END

Everything is a function of the task and the tokens so far, so that a partial rollout continues at
its last token.

In an episode this is one turn: `given_token_ids` are those of the environment between two turns,
`begin_turn` begins the next, whose thinking may be cut again. Given tokens become a part of the
completion together with the first token that is sampled after them, because the same weights
computed them; those that no sampled token follows never do.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.records import (
    KvMark,
    Leg,
    LegKind,
    PromptTask,
    Rollout,
    RoutedExperts,
    StopReason,
    VersionSpan,
)
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

    def __init__(
        self, task: PromptTask, index: int, decode: Decode, start: Rollout | None = None
    ) -> None:
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
        self.turn_start = 0
        """Tokens before the present turn."""
        self._turn_tokens = task.length.max_tokens
        self._turn_is_cut = start.interrupted
        self.given_token_ids: list[int] = []
        """Tokens of the environment that no sampled token follows yet. A turn begins after them."""
        self._cut = self._cut_position(0)

    @property
    def text_token_ids(self) -> list[int]:
        """The tokens without the end-of-text token, which is not part of the answer's text."""
        return self.token_ids[: len(self.token_ids) - (self.stop_reason is StopReason.END)]

    @property
    def num_input_tokens(self) -> int:
        """Tokens after the prompt that the next request begins with."""
        return len(self.token_ids) + len(self.given_token_ids)

    @property
    def can_have_two_legs(self) -> bool:
        """Whether it may be cut or is one of an episode, so that a later leg hits its own KV
        blocks.
        """
        return self._cut is not None or self.task.episode is not None

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
        # Negative while given tokens wait for the first sampled token of the turn.
        total = max(len(self.token_ids) - self.turn_start, 0)
        remaining = self._turn_tokens - total
        force_phrase = False
        if self._turn_is_cut:
            # Until the first token of the answer the phrase is the last leg.
            last_leg = self.legs[-1]
            num_answer_tokens = (
                len(self.token_ids) - last_leg.start if last_leg.kind is LegKind.ANSWER else 0
            )
            remaining = min(length.answer_tokens - num_answer_tokens, remaining)
        # A model that ends its thinking before the cut gets the whole budget, without the phrase.
        elif self._cut is not None and total < self._cut:
            remaining = min(self._cut, self._turn_tokens) - total
        elif self._cut is not None and not self._ended_thinking():
            remaining = min(length.answer_tokens, remaining - len(length.phrase))
            force_phrase = True
        return NextLeg(remaining, force_phrase) if remaining > 0 else None

    def begin_turn(self, turn: int, max_tokens: int) -> None:
        """Begin a further turn of the model, after the given tokens.

        `turn`: from 0 in the episode.
        """
        self.turn_start = self.num_input_tokens
        self._turn_tokens = max_tokens
        self._turn_is_cut = False
        if self._cut is not None:  # the first turn has a cut if the others have one
            self._cut = self._cut_position(turn)

    def limit_turn(self, max_tokens: int) -> None:
        """Set the budget of the present turn, its tokens so far included."""
        self._turn_tokens = max_tokens

    def force_phrase(self, version: PolicyVersion) -> None:
        """Append the phrase that ends thinking.

        It is not sampled, so it has no loss and log-prob 0.
        """
        phrase = self.task.length.phrase
        span = VersionSpan(version, 0, len(phrase))
        self.append(phrase, [0.0] * len(phrase), [span], LegKind.INTERRUPTION_PHRASE)
        self.interrupted = True
        self._turn_is_cut = True

    def append(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        spans: Sequence[VersionSpan],
        unsampled: LegKind | None = None,
    ) -> None:
        """Add tokens; `spans` count from the first of them. `unsampled`: the kind of tokens without
        loss, None = they were sampled.
        """
        assert len(token_ids) == len(logprobs)
        assert (spans[-1].end if spans else 0) == len(token_ids), (spans, len(token_ids))
        if not token_ids and unsampled is None:
            return
        given_token_ids = self.given_token_ids
        if given_token_ids and unsampled is None:
            self.given_token_ids = []
            # Their KV was computed by the weights that sampled the first token after them.
            span = VersionSpan(spans[0].version, 0, len(given_token_ids))
            self.append(given_token_ids, [0.0] * len(given_token_ids), [span], LegKind.GIVEN)
        start = len(self.token_ids)
        self.token_ids += token_ids
        self.logprobs += logprobs
        end = len(self.token_ids)
        for span in spans:
            first = start + span.start
            if self.version_spans and self.version_spans[-1].version == span.version:
                first = self.version_spans.pop().start
            self.version_spans.append(VersionSpan(span.version, first, start + span.end))
        kind = unsampled or (LegKind.ANSWER if self._turn_is_cut else LegKind.THINKING)
        if unsampled is not None:
            self.loss_masked.append((start, end))
        elif self.legs and self.legs[-1].kind is kind:
            start = self.legs.pop().start
        self.legs.append(Leg(kind, start, end))

    def mask(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take the loss from tokens [start, end) of each range. Some may be without it already."""
        merged_ranges: list[tuple[int, int]] = []
        for first, stop in sorted([*self.loss_masked, *ranges]):
            # Ranges that touch stay apart: each leg that was not sampled has its own.
            if merged_ranges and first < merged_ranges[-1][1]:
                merged_ranges[-1] = (merged_ranges[-1][0], max(stop, merged_ranges[-1][1]))
            else:
                merged_ranges.append((first, stop))
        self.loss_masked = merged_ranges

    def record_experts(self, start: int, experts: RoutedExperts) -> None:
        """Record the experts of the tokens from `start` on, prompt included, as they were computed
        last.
        """
        assert start <= self.num_routed
        previous_experts = self.routed_experts
        self.routed_experts = (
            experts
            if previous_experts is None
            else np.concatenate([previous_experts[:start], experts])
        )

    def mark_rebuild(self, position: int, num_kept: int) -> None:
        """KV from `num_kept` on was rebuilt before the token at `position`, by the version that
        sampled it.

        Ignored before the first token, because no token has seen other KV.
        """
        if 0 < position < len(self.token_ids):
            version = next(
                span.version for span in self.version_spans if span.start <= position < span.end
            )
            self.kv_marks.append(KvMark(position, num_kept, version))
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

    def _cut_position(self, turn: int) -> int | None:
        length = self.task.length
        if not length.interrupt_from:
            return None
        # A function of the task, so that the next owner of a partial rollout cuts it at the same
        # token.
        return interruption_position(
            seed=length.seed,
            sequence=self.task.sequence,
            rollout=self.index,
            low=length.interrupt_from,
            high=length.interrupt_to,
            turn=turn,
        )

    def _ended_thinking(self) -> bool:
        """Whether the model wrote the end-of-thinking marker in this turn before the cut."""
        # Compares text, because the marker may be tokenised in several ways: `>` and a line break
        # may be one token.
        marker = self.task.length.end_of_thinking
        if not marker:
            return False
        assert self._cut is not None
        thinking = self.token_ids[self.turn_start : self.turn_start + self._cut]
        return self._decode(list(marker)) in self._decode(thinking)
