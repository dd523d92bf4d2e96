"""A request whose history is given as messages: the turn that they continue, and its answer.

messages lead to a recorded turn -> the tokens between it and the next, if the format has them
else the rendered messages begin with the tokens of a recorded turn -> the tokens after it
else a further sequence, whose reason is counted
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rollcast.chat.base import ChatMessage, ToolSchema
from rollcast.chat.messages import assistant_message
from rollcast.generator.endpoint.call import (
    SamplingRequest,
    TurnAnswer,
    check_renderable,
    render_prompt,
    template_error,
)
from rollcast.generator.endpoint.histories import RecordedTurn
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.vllm.engine_request import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(SamplingRequest):
    """A history of messages, and the settings of its request as far as they are honored."""

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSchema]
    num_characters: int
    """The approximate size of the messages as JSON."""
    digests: Sequence[bytes]
    """The result of `history_digests`."""
    is_streamed: bool
    wants_usage: bool
    """Whether the stream ends with the number of its tokens."""
    wants_logprobs: bool
    wants_token_ids: bool
    """The tokens of prompt and answer, as vLLM gives them."""
    names_tokens_by_id: bool
    """Log-probs are of `token_id:17` in place of the token's text."""

    def prepare_turn(self, session: HarnessSession) -> tuple[int, int | None]:
        """Extend the turn that the messages continue, or begin a sequence.

        Raises RefusedRequestError.
        """
        messages = self.messages
        check_renderable(session, self.num_characters)
        longest_match = session.histories.longest(self.digests, messages)
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
        try:
            environment_tokens = session.parts.renderer.next_turn(
                tokens_before, sampled, messages[count:], self.tools
            )
        except Exception as error:  # as in `render_prompt`
            raise template_error(error) from error
        if environment_tokens is None:  # the format does not extend the turn
            return self._match_tokens(session, self._reason(session, "format"), turn)
        if turn.is_extended or turn.is_abandoned:
            prompt = [*tokens_before, *sampled, *environment_tokens]
            sequence = session.begin_sequence(prompt, self._reason(session, "forked"))
        else:
            sequence = session.extend_sequence(turn, environment_tokens)
        return sequence, turn.number

    def answer(
        self, session: HarnessSession, number: int, parent_turn: int | None, finish: Finish
    ) -> TurnAnswer:
        """Parse a turn of the record, and remember it."""
        tokens_before, sampled = session.record.turn_tokens(number)
        parsed = session.parts.renderer.parse(tokens_before, sampled, self.tools)
        ids = [next(session.call_ids) for _ in parsed.calls]
        message = dict(assistant_message(parsed, ids))
        # `completion_body` sends it as `reasoning`, the name in vLLM's protocol.
        message.pop("reasoning_content", None)
        for text in self.stop:
            message["content"] = str(message["content"]).partition(text)[0]
        malformed = sum(bool(call.problem) for call in parsed.calls)
        session.record.record_answer(
            number, tool_calls=len(parsed.calls), malformed_calls=malformed
        )
        session.histories.add(
            RecordedTurn(
                number,
                self.digests[-1],
                tuple(call["id"] for call in message.get("tool_calls", ())),
                time.monotonic(),
                parent_turn,
                message,
                is_retry=self.is_retry,
            ),
            [*tokens_before, *sampled],
        )
        stopped = "tool_calls" if message.get("tool_calls") else "stop"
        return TurnAnswer(
            message,
            parsed.reasoning,
            stopped if finish == "stop" else "length",
            tokens_before,
            sampled,
            session.record.turn_logprobs(number),
            session.record.sequences[session.record.turns[number].sequence].stop_text,
        )

    def _match_tokens(
        self, session: HarnessSession, reason: str, followed: RecordedTurn | None
    ) -> tuple[int, int | None]:
        """Extend the longest recorded turn that the rendered messages begin with, or begin a
        sequence.

        reason: of a further sequence. followed: the turn that the messages continue; None = no
        recorded one.
        """
        prompt = render_prompt(session, self.messages, self.tools)
        sequence, matched_turn = session.match_tokens(prompt, new=reason, forked=reason)
        followed = matched_turn or followed
        return sequence, None if followed is None else followed.number

    def _reason(self, session: HarnessSession, otherwise: str) -> str:
        return "retried" if session.histories.was_asked(self.digests[-1]) else otherwise
