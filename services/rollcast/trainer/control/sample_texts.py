"""Completions of an evaluation as text, for people: a single answer whole, an episode turn by turn
and token by token.

Every text is bounded, whatever the model or an environment wrote.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rollcast.rollouts.records import Branch, Episode, LegKind, Rollout, RolloutGroup, Turn
from rollcast.runfolder.samples import (
    SampledCompletion,
    SampledEpisode,
    SampledLeg,
    SampledTurn,
    SamplesRecord,
)
from rollcast.trainer.control.evaluation import Closed

MAX_CHARACTERS = 4_000
"""Length of a sampled prompt or completion: single answers of a thousand evaluations stay below 32
MB."""
MAX_TURNS = 32
"""Turns of an episode that are recorded: the first and the last ones."""
MAX_SAMPLED_TOKENS = 1_000
"""Sampled tokens of an episode whose texts and log-probs are recorded, 16 bytes each, shared fairly
by the turns."""
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""A tokenizer's text for the first bytes of a character whose others are in the next token."""
Text = Callable[[Sequence[int]], str]
"""Decodes token ids, special tokens included."""


def make_samples_record(closed: Closed, incarnation: int, text: Text) -> SamplesRecord:
    """The first completion of each of the evaluation's first prompts."""
    samples = [_completion(group, text) for group in closed.sampled]
    return SamplesRecord(incarnation, closed.step, closed.dataset, samples, time.time())


def _completion(group: RolloutGroup, text: Text) -> SampledCompletion:
    rollout = group.rollouts[0]
    episode = rollout.episode
    prompt = group.prompt_token_ids
    if episode is not None and episode.prompt_token_ids is not None:
        prompt = episode.prompt_token_ids
    return SampledCompletion(
        prompt=shorten_text(text(prompt.tolist())),
        completion=shorten_text(text(rollout.token_ids.tolist())),
        reward=rollout.reward,
        status=str(rollout.grading_status),
        num_tokens=rollout.num_tokens,
        truncated=rollout.truncated,
        episode=None if episode is None else _episode(rollout, episode, text),
        prompt_id=group.prompt_id,
    )


def shorten_text(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Beginning and end, with the number of characters left out between them."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def _episode(rollout: Rollout, episode: Episode, text: Text) -> SampledEpisode:
    numbered = list(enumerate(episode.turns, start=1))
    if len(numbered) > MAX_TURNS:
        numbered = numbered[: MAX_TURNS // 2] + numbered[-MAX_TURNS // 2 :]
    num_tokens = fair_limit([turn.end - turn.start for _, turn in numbered], MAX_SAMPLED_TOKENS)
    # Characters of each given text that are recorded at least, however many turns share
    # MAX_CHARACTERS
    num_characters = max(200, MAX_CHARACTERS // max(1, len(numbered)))
    writer = _TurnWriter(rollout, episode, text, num_tokens, num_characters)
    return SampledEpisode(
        environment=episode.environment,
        end=str(episode.end),
        reason=shorten_text(episode.reason, num_characters),
        turns=[writer.turn(number, turn) for number, turn in numbered],
        num_turns=len(episode.turns),
        environment_seconds=episode.environment_seconds,
        sampling_seconds=episode.sampling_seconds,
        restarts=episode.restarts,
    )


def fair_limit(lengths: Sequence[int], total: int) -> int:
    """The largest limit at which the lengths, each cut to it, add up to at most `total`."""
    remaining_total = total
    # The shortest first: the rest of its share goes to the others.
    for index, length in enumerate(sorted(lengths)):
        share = remaining_total // (len(lengths) - index)
        if length > share:
            return share
        remaining_total -= length
    return max(lengths, default=0)


@dataclass(frozen=True, slots=True)
class _TurnWriter:
    rollout: Rollout
    episode: Episode
    text: Text
    max_tokens: int
    """Sampled tokens of a turn that are recorded."""
    max_characters: int
    """Characters of a given text."""

    def turn(self, number: int, turn: Turn) -> SampledTurn:
        """The turn's own tokens, and those that the environment gave up to the next turn of the
        sequence.
        """
        sequence = self.rollout if turn.sequence == 0 else self.episode.branches[turn.sequence - 1]
        starts = [
            other_turn.start
            for other_turn in self.episode.turns
            if other_turn.sequence == turn.sequence
        ]
        later_starts = [start for start in starts if start > turn.start]
        end = min(later_starts, default=len(sequence.token_ids))
        prompt = ""
        if isinstance(sequence, Branch) and turn.start == min(starts):
            prompt = shorten_text(
                self.text(sequence.prompt_token_ids.tolist()), self.max_characters
            )
        return SampledTurn(
            number=number,
            sequence=turn.sequence,
            legs=[*self._sampled_legs(sequence, turn), *self._legs(sequence, turn.end, end)],
            prompt=prompt,
            reward=turn.reward,
            tool_calls=turn.tool_calls,
            malformed_calls=turn.malformed_calls,
            environment_seconds=turn.environment_seconds,
        )

    def _sampled_legs(self, sequence: Rollout | Branch, turn: Turn) -> Iterator[SampledLeg]:
        """The first and the last tokens of the turn, with a leg for those that are left out between
        them.
        """
        num_left_out = turn.end - turn.start - self.max_tokens
        if num_left_out <= 0:
            yield from self._legs(sequence, turn.start, turn.end)
            return
        first_left_out = turn.start + self.max_tokens // 2
        yield from self._legs(sequence, turn.start, first_left_out)
        yield SampledLeg(
            str(LegKind.ANSWER), "", [], [], is_trained=True, num_left_out=num_left_out
        )
        yield from self._legs(sequence, first_left_out + num_left_out, turn.end)

    def _legs(self, sequence: Rollout | Branch, start: int, end: int) -> Iterator[SampledLeg]:
        """Tokens [start, end) of a sequence: a leg for each stretch of one kind, version
        and loss.
        """
        ranges = [(leg.start, leg.end) for leg in sequence.legs]
        ranges += [(span.start, span.end) for span in sequence.version_spans]
        ranges += sequence.loss_masked
        edges = {start, end}
        edges.update(edge for bounds in ranges for edge in bounds if start < edge < end)
        for first, stop in pairwise(sorted(edges)):
            yield self._leg(sequence, first, stop)

    def _leg(self, sequence: Rollout | Branch, first: int, stop: int) -> SampledLeg:
        kind = next(
            (leg.kind for leg in sequence.legs if leg.start <= first < leg.end), LegKind.ANSWER
        )
        spans = sequence.version_spans
        version = next((str(span.version) for span in spans if span.start <= first < span.end), "")
        is_masked = any(low <= first < high for low, high in sequence.loss_masked)
        token_ids = sequence.token_ids[first:stop].tolist()
        if kind is LegKind.GIVEN:
            environment_text = shorten_text(self.text(token_ids), self.max_characters)
            return SampledLeg(str(kind), version, [environment_text], [], is_trained=False)
        # Digits that a reader can use. Adding 0 makes 0 of -0.
        logprobs = [round(float(value), 3) + 0.0 for value in sequence.logprobs[first:stop]]
        return SampledLeg(
            str(kind),
            version,
            token_texts(token_ids, self.text),
            logprobs,
            is_trained=not is_masked,
        )


def token_texts(token_ids: Sequence[int], text: Text) -> list[str]:
    """The text of each token.

    A character that several tokens make up is the text of the last of them.
    """
    texts = [""] * len(token_ids)
    unfinished: list[int] = []
    for index, token in enumerate(token_ids):
        unfinished.append(token)
        piece = text(unfinished)
        # A character of UTF-8 has at most 4 bytes, and a token at least one
        is_last = index == len(token_ids) - 1 or len(unfinished) == 4
        if is_last or not piece.endswith(UNFINISHED):
            texts[index] = piece
            unfinished = []
    return texts
