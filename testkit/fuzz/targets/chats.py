"""Tool schemas with calls of the model, chat templates, and messages that they render."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Environment, TemplateError

from rollcast.chat.base import ChatRefusedError, ChatRenderer
from rollcast.chat.bridge import TemplateBridge
from rollcast.chat.calls import Toolbox
from rollcast.chat.proof import check_extends
from rollcast.chat.template import ChatTemplate
from rollcast.config.errors import UserError
from testkit.chat_tokenizers import END_OF_TURN, TEMPLATES, Kind, make_chat_tokenizer
from testkit.fuzz.mutation import change_json, change_text
from testkit.fuzz.target import Target, is_json

SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 1},
            "b": {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "maxLength": 9},
            "c": {"type": "array", "items": {"$ref": "#/$defs/item"}, "uniqueItems": True},
            "d": {"enum": [1, "x", None, [1]]},
        },
        "required": ["a"],
        "additionalProperties": False,
        "patternProperties": {"^x_": {"type": "number"}},
        "$defs": {"item": {"anyOf": [{"const": 1}, {"type": "object", "minProperties": 1}]}},
    },
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{"if": {"required": ["a"]}, "then": {"properties": {"a": {"type": "number"}}}}],
        "not": {"required": ["z"]},
        "dependencies": {"a": ["b"]},
        "propertyNames": {"maxLength": 5},
        "oneOf": [{"contains": {"type": "null"}}, {"type": ["object", "null"]}],
    },
)
ARGUMENTS = {"a": 1, "b": "abc", "c": [1, {"k": 2}], "d": "x", "x_1": 1.5}


def _calls() -> list[bytes]:
    return [
        json.dumps({"schema": schema, "name": "f", "arguments": ARGUMENTS}).encode()
        for schema in SCHEMAS
    ]


def _call(content: bytes) -> object:
    call = json.loads(content) if is_json(content) else None
    if not isinstance(call, dict):
        return None
    tool = {"type": "function", "function": {"name": "f", "parameters": call.get("schema")}}
    return Toolbox([tool]).call(call.get("name"), call.get("arguments"), "raw")


@cache
def _tokenizer(kind: Kind = "chatml") -> Any:
    return make_chat_tokenizer(kind)


def _is_template(content: bytes) -> bool:
    try:
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(
            content.decode("utf-8", "replace")
        )
    except (TemplateError, RecursionError, ValueError):
        return False
    return True


def _learn(content: bytes) -> object:
    template = content.decode("utf-8", "replace")
    kinds = (kind for kind, end in END_OF_TURN.items() if end in template)
    tokenizer = _tokenizer(next(kinds, "chatml"))
    tokenizer.chat_template = template
    bridge = TemplateBridge(ChatTemplate(tokenizer, {}))
    check_extends(bridge, needs_tools=False)
    return bridge


@cache
def _bridge() -> ChatRenderer:
    return TemplateBridge(ChatTemplate(make_chat_tokenizer("chatml"), {}))


def _chats() -> list[bytes]:
    call = {
        "id": "call00000",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
    }
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "r"},
        {"role": "tool", "name": "f", "tool_call_id": "call00000", "content": "4"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMAS[0]}}
    answer = '<think>t</think>y<call>{"name": "f", "arguments": {"a": 1}}</call>'
    return [json.dumps({"messages": messages, "tools": [tool], "answer": answer}).encode()]


def _is_chat(content: bytes) -> bool:
    try:
        chat = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(chat, dict) and all(
        isinstance(chat.get(name), list) and all(isinstance(item, dict) for item in chat[name])
        for name in ("messages", "tools")
    )


def _render(content: bytes) -> object:
    """A whole turn: the prompt, the answer as it was sampled, and the next prompt."""
    # The endpoint lets nothing else through: a sequence of 4,096 tokens has 64 characters for each.
    if not _is_chat(content) or len(content) > 64 * 4_096:
        return None
    chat = json.loads(content)
    tools = [
        item
        for item in chat["tools"]
        if isinstance(item.get("function"), dict) and isinstance(item["function"].get("name"), str)
    ]
    prompt = _bridge().prompt(chat["messages"], tools)
    text = str(chat.get("answer", "")).encode("utf-8", "replace").decode()
    sampled = _tokenizer().encode(text, add_special_tokens=False)
    _bridge().parse(prompt, sampled, tools)
    return _bridge().next_turn(prompt, sampled, chat["messages"][-1:], tools)


TARGETS = (
    Target(
        *("tool-schema", _calls, change_json, is_json, _call, ()),
        ("chat.calls", "chat.schema_check"),
    ),
    Target(
        "chat-template",
        lambda: [text.encode() for text in TEMPLATES.values()],
        *(change_text, _is_template, _learn, (ChatRefusedError, UserError)),
        ("chat.bridge", "chat.proof", "chat.template", "chat.call_format", "chat.reasoning"),
        # A template is a program, which may take 60 s: rollcast.tasks.template_watch.
        seconds=5.0,
    ),
    Target(
        *("chat", _chats, change_json, _is_chat, _render, (ChatRefusedError,)),
        ("chat.bridge", "chat.template", "chat.call_format", "chat.calls", "chat.reasoning"),
        # Several renderings, each with its tokens.
        seconds=2.0,
    ),
)
