"""The record of an episode so far: its token sequences and its turns.

    turns of one sequence:
    begin_sequence -> sample_turn -> record_answer -> given tokens -> sample_turn ...
          ^---- the next turn cannot extend the sampled tokens: a further sequence, a `Branch` of
                the record

Used by the episode loop, and by sessions of the endpoint, whose turns are asked for by a program
outside.
"""

import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

import numpy as np

from rollcast.generator.completion import Completion
from rollcast.generator.episodes.shortening import truncate_rollout
from rollcast.generator.sequence import NO_OTHER_ENDS, SequenceSampler, TurnEnds
from rollcast.generator.shared_fields import shared_fields
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import Finish
from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    PromptTask,
    Rollout,
    StopReason,
    Turn,
)
from rollcast.wire.version import PolicyVersion

CUT_ENDS = (EpisodeEnd.TOKENS, EpisodeEnd.SECONDS)
"""The last turn was cut, so that no token of the model ended it."""
TRUNCATED_ENDS = (*CUT_ENDS, EpisodeEnd.TURNS)


class EpisodeRecord:
    """Sequences and turns of one episode.

    Turns of different sequences may be sampled at the same time.
    """

    def __init__(
        self, engine: Engine, task: PromptTask, index: int, max_sequence_tokens: int
    ) -> None:
        """`max_sequence_tokens`: longest prompt and completion together, `model.max_length`."""
        assert task.episode is not None
        self._engine = engine
        self.decode = engine.decode
        """Token ids to text, special tokens included."""
        self._task = task
        self._index = index
        self._max_sequence_tokens = max_sequence_tokens
        self.sequences: list[SequenceSampler] = []
        self.turns: list[Turn] = []
        self.episode = Episode(task.episode.environment)
        """The record of all except tokens; prompt, turns and branches are added at its end."""
        self._has_stopped: list[bool] = []
        """Whether the last token of each turn is one that ends turns."""
        self._ends: dict[int, int] = {}
        """How many tokens each sequence keeps, after `drop_turns`."""

    def restore(self, rollout: Rollout) -> None:
        """Take over the record of a former owner of the task."""
        episode = rollout.episode
        assert episode is not None
        self.begin_sequence(
            rollout.sequence_prompt(rollout, self._task.prompt_token_ids).tolist(), rollout
        )
        for branch in episode.branches:
            start = Rollout(self._index, **shared_fields(branch, Rollout))
            self.begin_sequence(branch.prompt_token_ids.tolist(), start)
        self.turns = list(episode.turns)
        self.episode = episode
        # The record is finished, and only the last turn is still read: by `last_answer`.
        self._has_stopped = [True] * len(self.turns)
        if self.turns:
            self._has_stopped[-1] = episode.end not in CUT_ENDS

    @property
    def versions(self) -> set[PolicyVersion]:
        """Versions that have or may have sampled a token."""
        versions: set[PolicyVersion] = set()
        return versions.union(*(sequence.versions for sequence in self.sequences))

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens of the model's turns."""
        return sum(turn.end - turn.start for turn in self.turns)

    def turn_tokens(self, turn: int) -> tuple[list[int], list[int]]:
        """All tokens before a turn in its sequence, prompt included, and its own."""
        recorded_turn = self.turns[turn]
        sequence = self.sequences[recorded_turn.sequence]
        tokens = sequence.completion.token_ids
        return sequence.prompt_token_ids + tokens[: recorded_turn.start], tokens[
            recorded_turn.start : recorded_turn.end
        ]

    def turn_logprobs(self, turn: int) -> list[float]:
        """The log-probs of a turn's tokens."""
        recorded_turn = self.turns[turn]
        logprobs = self.sequences[recorded_turn.sequence].completion.logprobs
        return logprobs[recorded_turn.start : recorded_turn.end]

    def last_answer(self) -> list[int]:
        """Tokens of the model's last turn, without the one that ended it:
        what a verifier grades.
        """
        if not self.turns:
            return []
        _, tokens = self.turn_tokens(-1)
        return tokens[:-1] if self._has_stopped[-1] else tokens

    def begin_sequence(self, prompt_token_ids: list[int], start: Rollout | None = None) -> int:
        """Return the number of a new sequence.

        `start`: its tokens so far, sampled by a former owner of the task.
        """
        completion = Completion(self._task, self._index, self.decode, start)
        self.sequences.append(SequenceSampler(self._engine, prompt_token_ids, completion))
        return len(self.sequences) - 1

    def remaining_tokens(self, sequence: int | None = None) -> int:
        """How many tokens the episode may still have, or the next turn of a sequence; not positive
        = none. Given tokens count, too.
        """
        lengths = [sampler.completion.num_input_tokens for sampler in self.sequences]
        episode_tokens = self._task.length.max_tokens - sum(lengths)
        if sequence is None:
            return episode_tokens
        prompt = self.sequences[sequence].prompt_token_ids
        return min(episode_tokens, self._max_sequence_tokens - len(prompt) - lengths[sequence])

    async def sample_turn(
        self, sequence: int, ends: TurnEnds = NO_OTHER_ENDS, max_tokens: int | None = None
    ) -> Finish:
        """Sample a turn of the model at the end of a sequence, within the episode's budget. Raises
        the engine's errors.

        "abort" = `abort` was called. Without a token there is no turn. `max_tokens`: budget of this
        turn alone, a former owner's tokens included.
        """
        sampler = self.sequences[sequence]
        completion = sampler.completion
        budget = self.remaining_tokens(sequence)
        # A turn's budget includes its tokens of a former owner, which `remaining_tokens` has
        # subtracted already.
        max_turn_tokens = budget + len(completion.token_ids) if max_tokens is None else max_tokens
        has_turns = any(turn.sequence == sequence for turn in self.turns)
        if completion.token_ids and not has_turns:  # a former owner began this turn
            completion.limit_turn(min(len(completion.token_ids) + budget, max_turn_tokens))
        else:
            completion.begin_turn(len(self.turns), min(budget, max_turn_tokens))
        start = completion.turn_start
        began_at = time.monotonic()
        try:
            finish = await sampler.turn(ends)
        finally:
            self.episode.sampling_seconds += time.monotonic() - began_at
        end = len(completion.token_ids)
        # An aborted request may have sampled nothing.
        if end > start:
            self.turns.append(Turn(sequence, start, end))
            self._has_stopped.append(finish == "stop" and sampler.stop_text is None)
        return finish

    def record_answer(
        self,
        turn: int,
        *,
        tool_calls: int = 0,
        malformed_calls: int = 0,
        reward: float = 0.0,
        environment_seconds: float = 0.0,
    ) -> None:
        """Note what the environment answered to a turn."""
        self.turns[turn] = replace(
            self.turns[turn],
            tool_calls=tool_calls,
            malformed_calls=malformed_calls,
            reward=reward,
            environment_seconds=environment_seconds,
        )

    def reward_turn(self, turn: int, reward: float) -> None:
        """Replace the reward of a turn."""
        self.turns[turn] = replace(self.turns[turn], reward=reward)

    def drop_turns(self, numbers: Container[int]) -> None:
        """Take out turns, and sequences without a turn. One that a turn which stays follows stays
        too, without loss.

        Nothing may be sampled after it.
        """
        last = {
            turn.sequence: number for number, turn in enumerate(self.turns) if number not in numbers
        }
        # A later turn of the same sequence has the tokens of a dropped one in its history.
        kept_numbers = [
            number
            for number, turn in enumerate(self.turns)
            if number <= last.get(turn.sequence, -1)
        ]
        for number in kept_numbers:
            if number in numbers:
                self.mask_turn(number, [(0, self.turns[number].end - self.turns[number].start)])
        turns = [self.turns[number] for number in kept_numbers]
        used = sorted({turn.sequence for turn in turns})
        positions = {sequence: position for position, sequence in enumerate(used)}
        # The last turn of each sequence, since they are in their order.
        self._ends = {positions[turn.sequence]: turn.end for turn in turns}
        self.turns = [replace(turn, sequence=positions[turn.sequence]) for turn in turns]
        self._has_stopped = [self._has_stopped[number] for number in kept_numbers]
        self.sequences = [self.sequences[sequence] for sequence in used]

    def mask_turn(self, number: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Take the loss from tokens of a turn, counted from its first."""
        turn = self.turns[number]
        self.sequences[turn.sequence].completion.mask(
            (turn.start + start, turn.start + end) for start, end in ranges
        )

    def abort(self) -> None:
        """Make every running `sample_turn` return soon. There is no other turn after it."""
        for sequence in self.sequences:
            sequence.abort()

    def rollout(self) -> Rollout:
        """The record, not graded.

        Call it once, after `Engine.observe`, because it counts the preemptions.
        """
        rollouts = [self._sequence_rollout(number) for number in range(len(self.sequences))]
        # One without a token is left out, because the engine may have refused its prompt. Later
        # ones move up.
        kept_numbers = [number for number, rollout in enumerate(rollouts) if rollout.num_tokens]
        if not kept_numbers:
            empty = np.zeros(0, dtype=np.int32)
            first = Rollout(self._index, empty, empty.astype(np.float32))
            first.episode = replace(self.episode, prompt_token_ids=None, turns=(), branches=())
        else:
            first = rollouts[kept_numbers[0]]
            first.episode = self._episode(kept_numbers, rollouts)
            first.preemptions = sum(rollout.preemptions for rollout in rollouts)
            first.interrupted = any(rollout.interrupted for rollout in rollouts)
        first.partial = self.episode.end is EpisodeEnd.RUNNING
        first.stop_reason = self.stop_reason
        return first

    def _episode(self, numbers: Sequence[int], rollouts: Sequence[Rollout]) -> Episode:
        """The record besides the tokens; `numbers`: of the sequences that it has."""
        prompts = [
            np.asarray(self.sequences[number].prompt_token_ids, dtype=np.int32)
            for number in numbers
        ]
        positions = {number: position for position, number in enumerate(numbers)}
        is_tasks_prompt = np.array_equal(prompts[0], self._task.prompt_token_ids)
        return replace(
            self.episode,
            # The record has the prompt only if it differs from that of the task.
            prompt_token_ids=None if is_tasks_prompt else prompts[0],
            turns=tuple(replace(turn, sequence=positions[turn.sequence]) for turn in self.turns),
            branches=tuple(
                Branch(prompt, **shared_fields(rollouts[number], Branch))
                for prompt, number in zip(prompts[1:], numbers[1:], strict=True)
            ),
        )

    def _sequence_rollout(self, number: int) -> Rollout:
        rollout = self.sequences[number].rollout()
        end = self._ends.get(number, rollout.num_tokens)
        if end == rollout.num_tokens:
            return rollout
        return truncate_rollout(rollout, end, len(self.sequences[number].prompt_token_ids))

    @property
    def stop_reason(self) -> StopReason:
        if self.episode.end is EpisodeEnd.RUNNING:
            return StopReason.RUNNING
        return StopReason.LENGTH if self.episode.end in TRUNCATED_ENDS else StopReason.END
