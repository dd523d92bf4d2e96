"""One request of a session, from its history to its answer.

    reserve (budget) -> slot of the engine -> find the history -> sample -> answer
                          `- deadline, end of the session, its client is gone: the wait ends

The history is looked for when the slot is there, without a wait between that and the beginning of
the turn: two requests never extend the same tokens.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollcast.chat.base import ChatMessage, ToolSchema
from rollcast.generator.endpoint.histories import RecordedTurn
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.episodes.waits import UnusableEpisodeError
from rollcast.generator.sequence import SequenceSampler, TurnEnds
from rollcast.generator.vllm.engine_request import BadRequestError, Finish
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


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """The sequence in which a request's turn is sampled."""

    sequence: int
    history_digest: bytes
    """Digest of the history that it answers."""
    follows: int | None = None
    """Number of the recorded turn that the history continues. None = no recorded turn, or
    tokens."""


class Request(Protocol):
    """The ways in which a history is given: as messages, or as tokens."""

    def prepare_turn(self, session: HarnessSession) -> PendingTurn:
        """Begin or extend a sequence with the history. Raises RefusedRequestError."""
        ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def stop(self) -> tuple[str, ...]: ...

    def answer(
        self, session: HarnessSession, pending_turn: PendingTurn, number: int, finish: Finish
    ) -> TurnAnswer:
        """Remember a turn of the record, and return what its client gets."""
        ...


class EndpointCall:
    """`run` it once. `abandon`: its client is gone."""

    def __init__(
        self,
        session: HarnessSession,
        request: Request,
        on_tokens: Callable[[list[int]], None] | None = None,
    ) -> None:
        """`on_tokens`: called with the turn's tokens so far.

        None = they are wanted at its end only.
        """
        self._session = session
        self._request = request
        self._on_tokens = on_tokens
        self._wait_task: asyncio.Task[Any] | None = None
        self._sequence: int | None = None
        self.tokens_before: list[int] = []
        """All tokens before the turn in its sequence, once it is sampled."""
        self._timer: asyncio.TimerHandle | None = None
        """Ends the turn with the episode's time."""
        self._is_abandoned = False
        self._is_ended = False

    async def run(self) -> TurnAnswer:
        """Sample a turn. Raises RefusedRequestError, and what the engine raises if it is dead."""
        session = self._session
        session.enter(self, self._end_wait)
        self._wait_task = asyncio.current_task()
        try:
            if self._is_abandoned:  # before this task had begun
                raise _client_disconnected_error()
            async with asyncio.timeout_at(
                asyncio.get_running_loop().time() + self._remaining_seconds()
            ):
                tokens = await session.reserve(self, self._request.max_tokens)
            await session.take_slot(self)
            # From here on `abandon` and the end of the session abort the sequence, and no longer
            # cancel this task.
            self._wait_task = None
            try:
                return await self._sample_turn(tokens)
            finally:
                session.parts.slots.release()
        except TimeoutError:
            raise session.refuse_over_budget(EpisodeEnd.SECONDS) from None
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
            if self._is_abandoned:
                raise _client_disconnected_error() from None
            raise RefusedRequestError("this session has ended", 404, "session_ended") from None
        except BadRequestError as error:
            raise RefusedRequestError(f"the engine refused it: {error}") from error
        except UnusableEpisodeError as error:
            session.failure = error
            raise RefusedRequestError(str(error), 503, "no_slot") from None
        except RefusedRequestError:
            raise
        except Exception as error:
            session.failure = error
            raise
        finally:
            self._wait_task = None
            await session.give_back(self)
            session.leave(self)

    def abandon(self) -> None:
        """No client reads the answer: stop sampling, and do not train on it."""
        self._is_abandoned = True
        self._end_wait()
        if self._sequence is not None:
            self._session.record.sequences[self._sequence].abort()

    def _end_wait(self) -> None:
        self._is_ended = True
        if self._wait_task is not None:
            self._wait_task.cancel()

    def _remaining_seconds(self) -> float:
        return min(max(self._session.deadline - time.monotonic(), 0.0), 1e9)

    async def _sample_turn(self, tokens: int) -> TurnAnswer:
        session = self._session
        session.check_open()
        pending_turn = self._request.prepare_turn(session)
        self._sequence = pending_turn.sequence
        sampler = session.record.sequences[pending_turn.sequence]
        self.tokens_before = sampler.prompt_token_ids + sampler.completion.input_token_ids
        if sampler.completion.given_token_ids:
            tokens = session.lower_reservation(self, tokens)
        ends = TurnEnds(session.parts.renderer.stop_token_ids, self._request.stop, self._on_tokens)
        num_turns_before = len(session.record.turns)
        self._end_in_time(sampler)
        try:
            finish = await session.record.sample_turn(pending_turn.sequence, ends, tokens)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._sequence = None
        number = len(session.record.turns) - 1
        # An aborted request without a token makes no turn.
        if (
            number < num_turns_before
            or session.record.turns[number].sequence != pending_turn.sequence
        ):
            session.check_open()
            if self._is_abandoned:
                raise _client_disconnected_error()
            raise session.refuse_over_budget(EpisodeEnd.SECONDS)
        turn_answer = self._request.answer(session, pending_turn, number, finish)
        session.histories.turns[-1].is_abandoned = self._is_abandoned or (
            finish == "abort" and session.was_ended_early
        )
        self._note_end(finish, len(turn_answer.token_ids))
        return turn_answer

    def _end_in_time(self, sampler: SequenceSampler) -> None:
        """Stop the turn at the deadline, which other requests of the session move while they wait
        for a slot.
        """
        if self._session.is_over:
            sampler.abort()
            return
        # Between two looks at a deadline that a wait for a slot moves
        seconds = max(self._remaining_seconds(), 0.05)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_in_time, sampler)

    def _note_end(self, finish: Finish, num_tokens: int) -> None:
        session = self._session
        session.has_answered |= finish != "abort" or not session.is_closed
        max_tokens = self._request.max_tokens
        session.last_refusal = ""
        session.is_last_turn_cut = finish == "length"
        session.exceeded_budget = None
        if finish == "abort" and not session.is_closed and not self._is_abandoned:
            session.exceeded_budget = EpisodeEnd.SECONDS
        elif finish == "length" and (max_tokens is None or num_tokens < max_tokens):
            session.exceeded_budget = EpisodeEnd.TOKENS


def _client_disconnected_error() -> RefusedRequestError:
    """The end of a request that no client waits for. No budget is over."""
    return RefusedRequestError(
        "its client closed the connection before a token was sampled", 499, "client_gone"
    )


def check_renderable(session: HarnessSession, num_characters: int) -> None:
    """Raises RefusedRequestError for a chat that is not rendered.

    With more characters for each token that a sequence may have it would hold up the event loop for
    seconds, and never fits.
    """
    if num_characters > 64 * session.parts.max_sequence_tokens:
        raise too_long(session, f"a chat of {num_characters} characters")


def render_prompt(
    session: HarnessSession, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
) -> list[int]:
    """The tokens of a whole chat. Raises RefusedRequestError."""
    try:
        return session.parts.renderer.prompt(messages, tools)
    except Exception as error:  # templates and tokenizers raise of all kinds at a hostile text
        raise RefusedRequestError(
            f"messages: the chat template rejects them: {str(error)[:300]}"
        ) from error


def begin_sequence(session: HarnessSession, prompt: list[int], reason: str) -> int:
    """Begin a sequence; `reason` is counted if it is a further one.

    Raises RefusedRequestError if it is too long.
    """
    record = session.record
    if len(prompt) >= session.parts.max_sequence_tokens:
        raise too_long(session, f"a history of {len(prompt)} tokens")
    start = session.start
    session.start = None
    if record.sequences:
        session.count_sequence(reason)
    elif start is not None:
        if start.sequence_prompt(start, record.task_prompt).tolist() == prompt:
            return record.begin_sequence(prompt, start)
        session.parts.note_discarded(session.task.environment, start.num_tokens)
    return record.begin_sequence(prompt)


def extend_sequence(session: HarnessSession, turn: RecordedTurn, added_tokens: list[int]) -> int:
    """Give tokens to the sequence of a turn, which is its last.

    Raises RefusedRequestError if none would be left.
    """
    record = session.record
    sequence = record.turns[turn.number].sequence
    if record.remaining_tokens(sequence) <= len(added_tokens):
        sampler = record.sequences[sequence]
        num_tokens = len(sampler.prompt_token_ids) + sampler.completion.num_input_tokens
        raise too_long(session, f"a history of {num_tokens + len(added_tokens)} tokens")
    turn.is_extended = True
    record.record_answer(
        turn.number,
        tool_calls=record.turns[turn.number].tool_calls,
        malformed_calls=record.turns[turn.number].malformed_calls,
        environment_seconds=time.monotonic() - turn.answered_at,
    )
    record.sequences[sequence].completion.given_token_ids += added_tokens
    return sequence


def add_recorded_turn(
    session: HarnessSession,
    pending_turn: PendingTurn,
    number: int,
    call_ids: tuple[str, ...],
    message: ChatMessage | None,
    *,
    is_retry: bool | None,
) -> None:
    """Remember a turn by the history that ends with its answer."""
    turn = RecordedTurn(
        number,
        pending_turn.history_digest,
        call_ids,
        time.monotonic(),
        pending_turn.follows,
        message,
        is_retry=is_retry,
    )
    tokens_before, sampled = session.record.turn_tokens(number)
    session.histories.add(turn, [*tokens_before, *sampled])


def too_long(session: HarnessSession, history_description: str) -> RefusedRequestError:
    """The refusal of a history that leaves no token to sample."""
    session.exceeded_budget = EpisodeEnd.TOKENS
    return RefusedRequestError(
        f"{history_description} leaves no room: an episode may have {session.task.max_tokens} "
        "tokens, and one sequence "
        f"{session.parts.max_sequence_tokens}",
        code="context_length_exceeded",
    )
