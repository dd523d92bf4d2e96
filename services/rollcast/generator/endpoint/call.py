"""One request of a session, from its history to its answer.

    reserve (budget) -> slot of the engine -> find the history -> sample -> answer
                          `- deadline, end of the session, its client is gone: the wait ends

The history is looked for when the slot is there, without a wait between that and the beginning of
the turn: two requests never extend the same tokens.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rollcast.chat.base import ChatMessage, ToolSchema
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.sequence import SequenceSampler, TurnEnds
from rollcast.generator.vllm.engine_request import Finish
from rollcast.rollouts.records import EpisodeEnd


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The turn that was sampled for a request."""

    message: dict[str, Any]
    """The assistant's message, as a client may send it back."""
    reasoning: str
    finish_reason: str
    prompt_token_ids: list[int]
    """All tokens before the turn."""
    token_ids: list[int]
    logprobs: list[float]
    stop_text: str | None = None
    """The stop text that ended it. None = the model or a budget did."""

    @property
    def usage(self) -> dict[str, int]:
        """Numbers of tokens, as the APIs have them."""
        num_given = len(self.prompt_token_ids)
        num_sampled = len(self.token_ids)
        return {
            "prompt_tokens": num_given,
            "completion_tokens": num_sampled,
            "total_tokens": num_given + num_sampled,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest(ABC):
    """A request for a turn, whose history is given as messages or as tokens."""

    max_tokens: int | None
    """None = as many as the episode's budget has."""
    stop: tuple[str, ...]
    replaced_settings: tuple[str, ...]
    """Settings of sampling in place of which the run's are used."""
    is_retry: bool | None
    """See `RecordedTurn.is_retry`."""

    @abstractmethod
    def prepare_turn(self, session: HarnessSession) -> tuple[int, int | None]:
        """Begin or extend a sequence with the history; returns its number, and that of the recorded
        turn that the history continues. None = no recorded turn, or tokens.

        Raises RefusedRequestError.
        """

    @abstractmethod
    def answer(
        self, session: HarnessSession, number: int, parent_turn: int | None, finish: Finish
    ) -> TurnAnswer:
        """Remember a turn of the record, and return what its client gets."""


@dataclass(eq=False)
class EndpointCall:
    """`run` it once. `abandon`: its client is gone."""

    session: HarnessSession
    request: SamplingRequest
    on_tokens: Callable[[list[int], list[int]], None] | None = None
    """The reader of the turn, see `TurnEnds.on_tokens`."""
    _wait_task: asyncio.Task[Any] | None = None
    """The call's own task until it samples."""
    _sampler: SequenceSampler | None = None
    """The sequence that is sampled."""
    _is_abandoned: bool = False
    _is_ended: bool = False

    async def run(self) -> TurnAnswer:
        """Sample a turn. Raises RefusedRequestError, and what the engine raises if it is dead."""
        session = self.session
        record = session.record
        if self._is_abandoned:  # before this task had begun
            raise self._end_error()
        self._wait_task = asyncio.current_task()
        try:
            async with session.turn(self, self.end, self.request.max_tokens) as tokens:
                # From here on `end` aborts the sequence, and no longer cancels this task.
                self._wait_task = None
                sequence, parent_turn = self.request.prepare_turn(session)
                self._sampler = record.sequences[sequence]
                if self._sampler.completion.given_token_ids:
                    tokens = session.lower_reservation(self, tokens)
                stop_token_ids = session.parts.renderer.stop_token_ids
                ends = TurnEnds(stop_token_ids, self.request.stop, self.on_tokens)
                num_turns_before = len(record.turns)
                finish = await record.sample_turn(sequence, ends, tokens)
                self._sampler = None
                number = len(record.turns) - 1
                # An aborted request without a token makes no turn.
                if number < num_turns_before or record.turns[number].sequence != sequence:
                    raise self._end_error()
                answer = self.request.answer(session, number, parent_turn, finish)
                session.note_turn(
                    finish,
                    len(answer.token_ids),
                    self.request.max_tokens,
                    is_abandoned=self._is_abandoned,
                )
                return answer
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
            raise self._end_error() from None
        finally:
            self._wait_task = None
            self._sampler = None

    def abandon(self) -> None:
        """No client reads the answer: stop sampling, and do not train on it."""
        self._is_abandoned = True
        self.end()

    def end(self) -> None:
        """End the wait, or the turn with its tokens so far."""
        self._is_ended = True
        if self._wait_task is not None:
            self._wait_task.cancel()
        if self._sampler is not None:
            self._sampler.abort()

    def _end_error(self) -> RefusedRequestError:
        """The refusal of a request that ended before a token was sampled."""
        if self._is_abandoned:  # no budget is over
            return RefusedRequestError(
                "its client closed the connection before a token was sampled", 499, "client_gone"
            )
        self.session.check_open()
        return self.session.refuse_over_budget(EpisodeEnd.SECONDS)


def check_renderable(session: HarnessSession, num_characters: int) -> None:
    """Raises RefusedRequestError for a chat that is not rendered.

    With more characters for each token that a sequence may have it would hold up the event loop for
    seconds, and never fits.
    """
    if num_characters > 64 * session.parts.max_sequence_tokens:
        raise session.refuse_too_long(f"a chat of {num_characters} characters")


def render_prompt(
    session: HarnessSession, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
) -> list[int]:
    """The tokens of a whole chat. Raises RefusedRequestError."""
    try:
        return session.parts.renderer.prompt(messages, tools)
    except Exception as error:  # templates and tokenizers raise of all kinds at a hostile text
        raise template_error(error) from error


def template_error(error: Exception) -> RefusedRequestError:
    """The refusal of messages that cannot be rendered."""
    return RefusedRequestError(f"messages: the chat template rejects them: {str(error)[:300]}")
