"""A renderer of any chat template, by the text that the template puts between two turns.

A conversation of a sentinel is rendered, and the text behind the sentinel is what follows any
answer:

    [user, assistant: SENTINEL, tool: 4]     ...SENTINEL<|end|>\\n<|tool|>4<|end|>\\n<|assistant|>
    appended to the sampled tokens                     <|end|>\\n<|tool|>4<|end|>\\n<|assistant|>

without the <|end|> if the model sampled it. `proof` shows at the start that this is what the
template would have rendered for whole conversations.
"""

from collections.abc import Sequence
from typing import Any

from rollcast.chat.base import AssistantTurn, ChatMessage, ChatRefusedError, ToolSchema
from rollcast.chat.call_format import (
    PROBE_ARGUMENTS,
    PROBE_NAME,
    PROBE_TOOL,
    CallFormat,
    learn,
    probe_calls,
)
from rollcast.chat.calls import Toolbox, bounded_calls
from rollcast.chat.reasoning import decode_tokens, holds_thinking, split_reasoning
from rollcast.chat.template import ChatTemplate
from rollcast.tasks.thinking import THINK_END

SENTINEL = "sentinel-7c1e"
"""Stands for what the model wrote. Plain text that no template changes."""
SENTINEL_THOUGHT = "thought-5d2b"
QUESTION: ChatMessage = {"role": "user", "content": "question"}


class TemplateBridge:
    """Implements ChatRenderer.

    Raises ChatRefusedError if a turn of the assistant has no end that is a token.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.closing_ids = self._closing_ids()
        """The tokens that end a turn; the last one is where sampling stops."""
        self.end_text = decode_tokens(template.tokenizer, self.closing_ids)
        self.call_format = self._learned_format()
        self.splits_at_questions = False
        """The template moves the tools to the last question: a chat with tools splits there. Found
        by the proof."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        eos = self.template.tokenizer.eos_token_id
        end = self.closing_ids[-1]
        return (end,) if eos is None or eos == end else (end, eos)

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        """Tokens up to the beginning of the assistant's turn. Raises ChatRefusedError."""
        return self.template.prompt(messages, tools)

    def parse(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], tools: Sequence[ToolSchema]
    ) -> AssistantTurn:
        """Read one turn of the assistant."""
        reasoning, content, _ = self._split(prompt_ids, token_ids)
        if self.call_format is None:
            return AssistantTurn(content.strip(), reasoning)
        leading_text, calls = self.call_format.read(content, Toolbox(tools))
        return AssistantTurn(leading_text.strip(), reasoning, bounded_calls(calls))

    def next_turn(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        """The tokens between this turn and the next; None = the template strips the thinking of
        this sequence.
        """
        roles = [message.get("role") for message in messages]
        if not roles or "assistant" in roles:
            return None
        if self.splits_at_questions and tools and "user" in roles:
            return None
        try:
            if holds_thinking(
                self.template.tokenizer, prompt_ids, token_ids
            ) and self._strips_thinking(messages, tools):
                return None
            text_between = self._text_between_turns(messages, tools)
        except ChatRefusedError:
            return None
        if token_ids and token_ids[-1] in self.stop_token_ids:
            return self.template.ids(text_between)[len(self.closing_ids) :]
        _, _, is_open = self._split(prompt_ids, token_ids)
        return self.template.ids(THINK_END + text_between if is_open else text_between)

    def _split(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> tuple[str, str, bool]:
        """Reasoning, content, and whether the reasoning has no end."""
        content_ids = list(token_ids)
        if content_ids and content_ids[-1] in self.stop_token_ids:
            content_ids.pop()
        return split_reasoning(self.template.tokenizer, prompt_ids, content_ids)

    def _closing_ids(self) -> tuple[int, ...]:
        """Up to the first token behind an answer that is no part of a text."""
        text = self.template.text([QUESTION, _sentinel(), QUESTION], [], begins_answer=True)
        if SENTINEL not in text:
            raise ChatRefusedError("leaves out the turns of the assistant")
        separator_ids = self.template.ids(
            text.partition(SENTINEL)[2].partition(str(QUESTION["content"]))[0]
        )
        added = set(self.template.tokenizer.get_added_vocab().values())
        ends = [position for position, token in enumerate(separator_ids) if token in added]
        if not ends:
            raise ChatRefusedError("ends a turn of the assistant with no token of its own")
        return tuple(separator_ids[: ends[0] + 1])

    def _learned_format(self) -> CallFormat | None:
        """How the template writes a call; None = it knows no calls."""
        calls = probe_calls(["probe0000"], [PROBE_NAME], PROBE_ARGUMENTS)
        assistant_message = {"role": "assistant", "content": SENTINEL, "tool_calls": calls}
        try:
            prompt_text = self.template.text([QUESTION], [PROBE_TOOL], begins_answer=True)
            text = self.template.text([QUESTION, assistant_message], [PROBE_TOOL])
        except ChatRefusedError:
            return None
        # A template may leave out the content of a message with calls.
        call_text = text.rpartition(SENTINEL)[2] if SENTINEL in text else text[len(prompt_text) :]
        return learn(call_text.partition(self.end_text)[0])

    def _text_between_turns(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
    ) -> str:
        """The template's text from the end of the assistant's turn to the beginning of its next
        turn.
        """
        assistant_message = _sentinel(messages)
        num_sentinels = self.template.text([QUESTION, assistant_message], tools).count(SENTINEL)
        text = self.template.text(
            [QUESTION, assistant_message, *messages], tools, begins_answer=True
        )
        text_after_sentinel = text.split(SENTINEL, num_sentinels)[-1] if num_sentinels else ""
        _, end, following = text_after_sentinel.partition(self.end_text)
        if not end:
            raise ChatRefusedError("leaves out the turns of the assistant when others follow")
        return end + following

    def _strips_thinking(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]
    ) -> bool:
        """Whether the template shows the thinking of a last message, and no longer when these
        follow.
        """
        as_field = {**_sentinel(messages), "reasoning_content": SENTINEL_THOUGHT}
        in_content = {
            **_sentinel(messages),
            "content": f"<think>\n{SENTINEL_THOUGHT}\n{THINK_END}\n\n{SENTINEL}",
        }
        for assistant_message in (as_field, in_content):
            is_shown = SENTINEL_THOUGHT in self.template.text([QUESTION, assistant_message], tools)
            if is_shown and SENTINEL_THOUGHT not in self.template.text(
                [QUESTION, assistant_message, *messages], tools
            ):
                return True
        return False


def _sentinel(following: Sequence[ChatMessage] = ()) -> dict[str, Any]:
    """The assistant's message, with the calls that the results among the following messages
    answer.
    """
    results = [message for message in following if message.get("role") == "tool"]
    message: dict[str, Any] = {"role": "assistant", "content": SENTINEL}
    if results:
        call_ids = [str(result.get("tool_call_id") or "sentinel0") for result in results]
        names = [str(result.get("name") or "tool") for result in results]
        message["tool_calls"] = probe_calls(call_ids, names, {SENTINEL: SENTINEL})
    return message
