"""One attempt at an episode, in one environment from its reset to its reward.

    acquire -> reset -> turn -> calls -> given tokens -> turn -> ... -> end -> reward -> release
                          |      |        `- a turn cannot extend the sampled tokens:
                          |      |           it begins a further sequence
                          |      `- the environment is done: DONE;
                          |         budgets of turns and seconds: TURNS, SECONDS
                          `- it calls no tool: ANSWERED;
                             budgets of tokens and seconds: TOKENS, SECONDS

A call under way ends at its own deadline, not at the episode's: an environment cannot be asked
again after a cut call. A wait for a slot of the engine is not the episode's fault: it does not
count towards its seconds. But an episode that waits for slots longer than it may last has no
verdict, so that it ends. Every wait may end in EnvironmentFailedError, or after `give_up` in
GivenUpError; then too the environment is released.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rollcast.chat.base import AssistantTurn, ChatMessage
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment, ToolSchema
from rollcast.generator.episodes.base_attempt import BaseAttempt
from rollcast.generator.episodes.calls import GRACE_SECONDS, CallAnswers, answer_calls
from rollcast.generator.episodes.clock import EpisodeClock
from rollcast.generator.episodes.parts import (
    MAX_SET_UP_SLOT_SECONDS,
)
from rollcast.generator.episodes.reward import request_reward
from rollcast.generator.episodes.transcript import Transcript
from rollcast.generator.episodes.waits import GivenUpError, T, UnusableEpisodeError
from rollcast.generator.sequence import TurnEnds
from rollcast.generator.vllm.engine_request import Finish
from rollcast.rollouts.records import EpisodeEnd
from rollcast.telemetry import episode_metrics


@dataclass(eq=False)
class EpisodeAttempt(BaseAttempt):
    """An attempt whose turns are taken here, with calls that an environment answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock = EpisodeClock(self.parts.slots, self._limits.max_seconds)
        self._is_set_up = False
        self._is_sampling = False
        self._has_ended_turn = False
        low, high = self._settings.reward_range
        self._reward_width = high - low
        self._last_rewards: tuple[int, list[float]] | None = None
        """The last turn whose calls were rewarded, with their rewards. None = no call was rewarded
        so far."""

    @property
    def has_ended_turn(self) -> bool:
        """Whether a turn has ended, so that the environment's state may have changed."""
        return self._has_ended_turn

    @property
    def occupies_slot(self) -> bool:
        """Whether it samples, waits for a slot of the engine, or soon will."""
        if self._is_set_up:
            return self._is_sampling
        return time.monotonic() - self._created_at < MAX_SET_UP_SLOT_SECONDS

    def give_up(self) -> None:
        """Nothing more is sampled or asked for."""
        self._waits.give_up()
        self.record.abort()

    async def run(self) -> None:
        with self.parts.counting(episode_metrics.EPISODES_WAITING, self._name):
            acquiring = self.parts.environments.acquire(self._name)
            environment = await self._set_up(acquiring, "none was free")
        is_reusable = False
        try:
            # From here on: the wait for a free environment is not the episode's time.
            self.clock.start()
            end = await self._converse(environment)
            if not self.record.turns:
                raise UnusableEpisodeError("the episode's time was over before its first token")
            if not self.task.verifier:
                self.stage = "reward"
                self.graded = await request_reward(
                    environment,
                    self._settings.call_seconds,
                    self._settings.reward_range,
                    self._waits,
                )
                # The server gives the reward of the last call again as the episode's, and it must
                # count once.
                if self._settings.repeats_last_reward and self._last_rewards is not None:
                    turn, rewards = self._last_rewards
                    self.record.reward_turn(turn, sum(rewards[:-1]))
            self.record.episode.end = end
            # After a failure or a hand-over the environment may be in any state.
            is_reusable = await self._note_metrics(environment)
        except UnusableEpisodeError as error:
            self.fail(str(error))
        finally:
            self.record.episode.environment_seconds = self._waits.environment_seconds
            self.parts.run_in_background(
                self.parts.environments.release(environment, is_reusable=is_reusable)
            )

    async def _note_metrics(self, environment: LiveEnvironment) -> bool:
        """Ask for the environment's own numbers; returns whether it still works.

        The episode is over: without its numbers it is trained all the same.
        """
        self.stage = "metrics"
        seconds = self._settings.call_seconds
        try:
            values = await self._waits.ask(environment.metrics(), seconds + GRACE_SECONDS)
        except GivenUpError:
            return False
        except (EnvironmentFailedError, TimeoutError) as error:
            reason = str(error) or f"gave no metrics within {seconds:g} seconds"
            self.parts.note_failure(self._name, self.stage, reason)
            return False
        self.record.episode.metrics = self.parts.bound_metrics(self._name, values)
        return True

    async def _converse(self, environment: LiveEnvironment) -> EpisodeEnd:
        """Take turns until the episode ends."""
        row = json.loads(self.task.reference)
        self.stage = "reset"
        opening = await self._set_up(environment.reset(row), "was not ready")
        transcript = Transcript(self._limits.messages, opening)
        sequence = self._first_sequence(transcript.messages, opening.tools)
        while True:
            finish = await self._sample(sequence)
            if finish == "length":
                return EpisodeEnd.TOKENS
            if finish == "abort":
                return EpisodeEnd.SECONDS
            self._has_ended_turn = True
            turn = self.parts.renderer.parse(*self.record.turn_tokens(-1), opening.tools)
            if not turn.calls:
                return EpisodeEnd.ANSWERED
            call_ids = [next(transcript.call_ids) for _ in turn.calls]
            answers = await self._answer_calls(environment, turn, call_ids)
            if answers.is_done:
                return EpisodeEnd.DONE
            if len(self.record.turns) >= self._limits.max_turns:
                return EpisodeEnd.TURNS
            if self.clock.remaining_seconds <= 0.0:
                return EpisodeEnd.SECONDS
            transcript.add(turn, call_ids, answers.messages)
            if not self._extend(sequence, answers.messages, opening.tools):
                sequence = self.record.begin_sequence(
                    self._render_prompt(transcript.messages, opening.tools)
                )

    async def _set_up(self, call: Coroutine[Any, Any, T], otherwise: str) -> T:
        seconds = self._settings.reset_seconds
        try:
            return await self._waits.ask(call, seconds + GRACE_SECONDS)
        except TimeoutError:
            raise EnvironmentFailedError(f"{otherwise} within {seconds:g} seconds") from None

    def _first_sequence(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> int:
        """Begin the first sequence, with the tokens of a former owner if they follow the same
        prompt.
        """
        prompt = self._render_prompt(messages, tools)
        start = self.parts.usable_start(self.task, self.start, prompt)
        self._is_set_up = True
        sequence = self.record.begin_sequence(prompt, start)
        if self.record.remaining_tokens(sequence) <= 0 and start is None:
            raise UnusableEpisodeError(
                f"its prompt of {len(prompt)} tokens leaves no room in model.max_length"
            )
        return sequence

    def _render_prompt(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
    ) -> list[int]:
        length = sum(len(str(message.get("content"))) for message in messages)
        # A chat with more characters for each token that a sequence may have is not rendered: it
        # would hold up the event loop for seconds, and never fits
        if length > 64 * self.parts.max_sequence_tokens:
            raise UnusableEpisodeError(
                f"its chat of {length} characters is too long for model.max_length"
            )
        try:
            return self.parts.renderer.prompt(messages, tools)
        except Exception as error:  # templates and tokenizers raise of all kinds at a hostile text
            raise UnusableEpisodeError(
                f"the chat template rejects its messages: {error}"
            ) from error

    async def _sample(self, sequence: int) -> Finish:
        """Sample a turn in a slot of the engine. "abort" = the budget of seconds ran out."""
        self._is_sampling = True
        try:
            # Moves the episode's deadline by the wait.
            try:
                await self._waits.wait(self.clock.take_slot())
            except UnusableEpisodeError:
                self.stage = "slot"
                raise
            seconds = max(self.clock.remaining_seconds, 0.0)
            timer = asyncio.get_running_loop().call_later(seconds, self.record.abort)
            try:
                finish = await self.record.sample_turn(
                    sequence, TurnEnds(self.parts.renderer.stop_token_ids)
                )
            finally:
                timer.cancel()
                self.parts.slots.release()
        finally:
            self._is_sampling = False
        if self._waits.is_given_up:
            # Nothing may be sampled behind the token that ended the turn.
            self._has_ended_turn |= finish == "stop"
            raise GivenUpError
        return finish

    async def _answer_calls(
        self, environment: LiveEnvironment, turn: AssistantTurn, call_ids: Sequence[str]
    ) -> CallAnswers:
        seconds_before = self._waits.environment_seconds
        call_seconds = self._settings.call_seconds
        self.stage = "call"
        try:
            answers = await answer_calls(
                environment,
                turn.calls,
                call_ids,
                call_seconds,
                self.clock.deadline,
                self._waits,
                self._reward_width,
            )
        except EnvironmentFailedError as error:
            if error.is_overdue:
                self.parts.exporter.add(
                    episode_metrics.EPISODE_CALLS_OVERDUE, environment=self._name
                )
            raise
        self.record.record_answer(
            len(self.record.turns) - 1,
            tool_calls=len(turn.calls),
            malformed_calls=answers.num_malformed,
            reward=sum(answers.rewards),
            environment_seconds=self._waits.environment_seconds - seconds_before,
        )
        if answers.rewards:
            self._last_rewards = (len(self.record.turns) - 1, answers.rewards)
        if answers.num_cut:
            self.parts.exporter.add(
                episode_metrics.EPISODE_ANSWERS_CUT, answers.num_cut, environment=self._name
            )
        if answers.num_overdue:
            self.parts.exporter.add(
                episode_metrics.EPISODE_CALLS_OVERDUE, answers.num_overdue, environment=self._name
            )
        return answers

    def _extend(
        self, sequence: int, answers: Sequence[ChatMessage], tools: Sequence[ToolSchema]
    ) -> bool:
        """Give the answers to the sequence; False = the model's format splits the episode here."""
        try:
            environment_tokens = self.parts.renderer.next_turn(
                *self.record.turn_tokens(-1), answers, tools
            )
        except Exception as error:  # as above
            raise UnusableEpisodeError(f"the chat template rejects its answers: {error}") from error
        if environment_tokens is None:
            return False
        self.record.sequences[sequence].completion.given_token_ids += environment_tokens
        return True
