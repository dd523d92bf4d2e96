"""Which renderer of the package `renderers` writes what a model's chat template writes.

The package knows models by their names on the hub. A folder is recognised by its template: both
render the probe conversations, and the tokens must be the same.
"""

from collections.abc import Sequence
from typing import Any

from rollcast.chat.base import ChatMessage, ChatRefusedError, ToolSchema
from rollcast.chat.proof import QUESTION, Conversation, plain_conversations, tool_conversations
from rollcast.chat.template import ChatTemplate, ChatTokenizer
from rollcast.chat.typed import made_by_package, package_names

THINKING = "enable_thinking"
"""The option of chat templates that switches thinking on and off."""
MARKS = {"gpt-oss": "<|channel|>"}
"""A token without which a renderer is not tried: making this one reads a vocabulary from the
network."""


def recognise_renderer(tokenizer: ChatTokenizer) -> tuple[str, dict[str, Any]] | None:
    """The name of the renderer and the options that are this template's defaults.

    None = no renderer of the package writes as this template.
    """
    chats = [*plain_conversations(), *tool_conversations()]
    for name in package_names():
        if name in MARKS and MARKS[name] not in tokenizer.get_added_vocab():
            continue
        for thinks in ({}, {THINKING: True}):
            renderer = _try_renderer(name, tokenizer, thinks)
            if renderer is not None and _writes_alike(renderer, tokenizer, chats):
                return name, _own_thinking(name, tokenizer)
    return None


def _try_renderer(name: str, tokenizer: ChatTokenizer, options: dict[str, Any]) -> Any | None:
    """None = the tokenizer has not this format's tokens, or the format has no such option."""
    try:
        return made_by_package(name, tokenizer, options)
    except Exception:  # the package asserts its tokens
        return None


def _own_thinking(name: str, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Models of one family may differ in whether their template asks for thinking by itself."""
    first = [QUESTION]
    expected = _by_template(ChatTemplate(tokenizer, {}), first, ())
    choices: tuple[dict[str, Any], ...] = ({}, {THINKING: True}, {THINKING: False})
    for options in choices:
        renderer = _try_renderer(name, tokenizer, options)
        if renderer is not None and _by_renderer(renderer, first, ()) == expected:
            return options
    return {}


def _writes_alike(renderer: Any, tokenizer: ChatTokenizer, chats: Sequence[Conversation]) -> bool:
    # The renderer's own values, such as a date: a template that knows them takes them, and others
    # ignore them.
    config = renderer.config
    values = {field: getattr(config, field) for field in config.template_field_names()}
    template = ChatTemplate(
        tokenizer, {field: value for field, value in values.items() if value is not None}
    )
    return all(_same(renderer, template, chat) for chat in chats)


def _same(renderer: Any, template: ChatTemplate, chat: Conversation) -> bool:
    messages: list[ChatMessage] = list(chat.opening)
    for number, step in enumerate(chat.steps, start=1):
        messages += [step.assistant_message, *step.replies]
        if chat.is_long and number < len(
            chat.steps
        ):  # its last rendering shows whether earlier turns are shortened
            continue
        expected = _by_template(template, messages, chat.tools)
        if expected is None and not chat.may_be_refused:
            return False
        if _by_renderer(renderer, messages, chat.tools) != expected:
            return False
    return True


def _by_renderer(
    renderer: Any, messages: list[ChatMessage], tools: Sequence[ToolSchema]
) -> list[int] | None:
    """None = refused."""
    try:
        return list(
            renderer.render_ids(messages, tools=list(tools) or None, add_generation_prompt=True)
        )
    except Exception:  # such as two calls in one turn
        return None


def _by_template(
    template: ChatTemplate, messages: list[ChatMessage], tools: Sequence[ToolSchema]
) -> list[int] | None:
    try:
        return template.prompt(messages, tools)
    except ChatRefusedError:
        return None
