"""A tokenizer's chat template as a function from messages to text."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rollcast.chat.base import ChatMessage, ChatRefusedError, ToolSchema
from rollcast.tasks.template_watch import watch_template
from rollcast.tasks.tokens import Tokenizer

MAX_REASON_CHARACTERS = 200


class ChatTokenizer(Tokenizer, Protocol):
    """The part of a Hugging Face tokenizer that renderers use."""

    eos_token_id: int | None

    def encode(self, text: str, **options: Any) -> list[int]: ...
    def get_added_vocab(self) -> dict[str, int]: ...
    def convert_tokens_to_ids(self, tokens: Any) -> Any: ...


class ChatTemplate:
    """Renders with the template's own options, such as `enable_thinking`."""

    def __init__(self, tokenizer: ChatTokenizer, options: Mapping[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._options = dict(options)
        self._name = getattr(tokenizer, "name_or_path", "") or "the model"

    def text(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        *,
        begins_answer: bool = False,
    ) -> str:
        """The chat; with `begins_answer` also the beginning of the assistant's next turn.

        Raises ChatRefusedError.
        """
        try:
            with watch_template(self._name):
                rendered = self.tokenizer.apply_chat_template(
                    [as_templates_take_it(message) for message in messages],
                    tools=[dict(tool) for tool in tools] or None,
                    add_generation_prompt=begins_answer,
                    tokenize=False,
                    **self._options,
                )
            text = str(rendered)
            text.encode()  # no tokenizer takes half of a surrogate pair
        except Exception as error:  # a template is a program and raises arbitrary exceptions
            raise make_refused_error(error) from error
        return text

    def ids(self, text: str) -> list[int]:
        """The tokens of a rendered text: it has its special tokens already."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        """Tokens up to the beginning of the assistant's turn. Raises ChatRefusedError."""
        return self.ids(self.text(messages, tools, begins_answer=True))


def make_refused_error(error: Exception) -> ChatRefusedError:
    """The reason of a template, or of a renderer, in one line."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return ChatRefusedError(
        f"the chat format refuses the messages ({reason[:MAX_REASON_CHARACTERS]})"
    )


def as_templates_take_it(message: ChatMessage) -> dict[str, Any]:
    """A message of the OpenAI API: no content is an empty one, and arguments as JSON text become an
    object.
    """
    template_message = dict(message)
    if template_message.get("content") is None:
        template_message["content"] = ""
    if template_message.get("tool_calls"):
        template_message["tool_calls"] = [
            _with_object(call) for call in template_message["tool_calls"]
        ]
    return template_message


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # a text stays one
            function["arguments"] = json.loads(arguments)
    return {**call, "function": function}
