"""A request whose history is given as messages: the turn that they continue, and its answer.

messages lead to a recorded turn -> the tokens between it and the next, if the format has them
else the rendered messages begin with the tokens of a recorded turn -> the tokens after it
else a further sequence, whose reason is counted
"""

from collections.abc import Sequence

from rollcast.chat.base import ChatMessage, ToolSchema
from rollcast.chat.messages import assistant_message
from rollcast.generator.endpoint.bodies import num_characters
from rollcast.generator.endpoint.call import (
    PendingTurn,
    TurnAnswer,
    add_recorded_turn,
    begin_sequence,
    check_renderable,
    extend_sequence,
    render_prompt,
)
from rollcast.generator.endpoint.histories import RecordedTurn, history_digests
from rollcast.generator.endpoint.protocol import ChatParameters
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.vllm.engine_request import Finish


class ChatRequest:
    """A history of messages."""

    def __init__(self, chat_parameters: ChatParameters, *, is_retry: bool | None) -> None:
        """`is_retry`: as `RecordedTurn.is_retry`."""
        self._chat_parameters = chat_parameters
        self._is_retry = is_retry
        self._digests = history_digests(chat_parameters.messages, chat_parameters.tools)
        self._num_characters = num_characters(chat_parameters.messages)

    @property
    def max_tokens(self) -> int | None:
        return self._chat_parameters.max_tokens

    @property
    def stop(self) -> tuple[str, ...]:
        return self._chat_parameters.stop

    def prepare_turn(self, session: HarnessSession) -> PendingTurn:
        """Extend the turn that the messages continue, or begin a sequence.

        Raises RefusedRequestError.
        """
        messages = self._chat_parameters.messages
        tools = self._chat_parameters.tools
        check_renderable(session, self._num_characters)
        longest_match = session.histories.longest(self._digests, messages)
        if longest_match is None:
            has_answers = any(message.get("role") == "assistant" for message in messages)
            return self._match_tokens(
                session, "rewritten" if has_answers else self._reason(session, "new"), None
            )
        turn, count = longest_match
        tokens_before, sampled = session.record.turn_tokens(turn.number)
        turn.has_followers = True
        if any(message.get("role") == "assistant" for message in messages[count:]):
            return self._match_tokens(session, "rewritten", turn)
        environment_tokens = _tokens_between(
            session, tokens_before, sampled, messages[count:], tools
        )
        if environment_tokens is None:
            return self._match_tokens(session, self._reason(session, "format"), turn)
        if turn.is_extended or turn.is_abandoned:
            return self._begin_sequence(
                session,
                [*tokens_before, *sampled, *environment_tokens],
                self._reason(session, "forked"),
                turn.number,
            )
        return PendingTurn(
            extend_sequence(session, turn, environment_tokens), self._digests[-1], turn.number
        )

    def answer(
        self, session: HarnessSession, pending_turn: PendingTurn, number: int, finish: Finish
    ) -> TurnAnswer:
        """Parse a turn of the record, and remember it."""
        tokens_before, sampled = session.record.turn_tokens(number)
        parsed = session.parts.renderer.parse(tokens_before, sampled, self._chat_parameters.tools)
        call_ids = session.next_call_ids(len(parsed.calls))
        message = dict(assistant_message(parsed, call_ids))
        # `completion_body` sends it as `reasoning`, the name in vLLM's protocol.
        message.pop("reasoning_content", None)
        for text in self._chat_parameters.stop:
            message["content"] = str(message["content"]).partition(text)[0]
        malformed = sum(bool(call.problem) for call in parsed.calls)
        session.record.record_answer(
            number, tool_calls=len(parsed.calls), malformed_calls=malformed
        )
        kept_ids = tuple(call["id"] for call in message.get("tool_calls", ()))
        add_recorded_turn(session, pending_turn, number, kept_ids, message, is_retry=self._is_retry)
        turn = session.record.turns[number]
        sampler = session.record.sequences[turn.sequence]
        logprobs = sampler.completion.logprobs[turn.start : turn.end]
        stopped = "tool_calls" if message.get("tool_calls") else "stop"
        reason = stopped if finish == "stop" else "length"
        return TurnAnswer(
            message,
            parsed.reasoning,
            reason,
            tokens_before,
            sampled,
            logprobs,
            sampler.stop_text,
        )

    def _match_tokens(
        self, session: HarnessSession, reason: str, followed: RecordedTurn | None
    ) -> PendingTurn:
        """Extend the longest recorded turn that the rendered messages begin with, or begin a
        sequence.

        reason: of a further sequence. followed: the turn that the messages continue; None = no
        recorded one.
        """
        prompt = render_prompt(session, self._chat_parameters.messages, self._chat_parameters.tools)
        longest_match = session.histories.longest_of_tokens(prompt)
        if longest_match is not None:
            followed, length = longest_match
            followed.has_followers = True
            if not (followed.is_extended or followed.is_abandoned):
                return PendingTurn(
                    extend_sequence(session, followed, prompt[length:]),
                    self._digests[-1],
                    followed.number,
                )
        return self._begin_sequence(
            session, prompt, reason, None if followed is None else followed.number
        )

    def _begin_sequence(
        self, session: HarnessSession, prompt: list[int], reason: str, follows: int | None = None
    ) -> PendingTurn:
        return PendingTurn(begin_sequence(session, prompt, reason), self._digests[-1], follows)

    def _reason(self, session: HarnessSession, otherwise: str) -> str:
        return "retried" if session.histories.was_asked(self._digests[-1]) else otherwise


def _tokens_between(
    session: HarnessSession,
    tokens_before: list[int],
    sampled: list[int],
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSchema],
) -> list[int] | None:
    """The tokens between a recorded turn and the next; None = the format does not extend it."""
    try:
        return session.parts.renderer.next_turn(tokens_before, sampled, messages, tools)
    except Exception as error:  # as in `render_prompt`
        raise RefusedRequestError(
            f"messages: the chat template rejects them: {str(error)[:300]}"
        ) from error
