"""The format of a chat template's tool calls, learned from a rendered probe, and the calls in a
text of the model.

<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>
        opening <tool_call>, closing </tool_call>
{"name": "add", "parameters": {"a": 1}}
        no marks: the whole turn is one call
[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "1"}]
        opening [TOOL_CALLS], a list of calls
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollcast.chat.base import ToolCall
from rollcast.chat.calls import Toolbox, unreadable
from rollcast.chat.messages import call_message

PROBE_NAME = "probe_of_a_call"
PROBE_ARGUMENTS = {"probe_key": "probe value", "count": 3, "flag": True, "parts": [1, "é"]}
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": PROBE_NAME,
        "description": "Shows how calls are written.",
        "parameters": {
            "type": "object",
            "properties": {
                "probe_key": {"type": "string"},
                "count": {"type": "integer"},
                "flag": {"type": "boolean"},
                "parts": {"type": "array"},
            },
        },
    },
}
DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The marks around a call's JSON, and the keys inside it."""

    opening: str
    """Empty = calls have no marks."""
    closing: str
    """Empty = a call ends with its JSON."""
    name_key: str
    arguments_key: str

    def read(self, text: str, toolbox: Toolbox) -> tuple[str, list[ToolCall]]:
        """What precedes the first call, and the calls."""
        content, mark, rest = text.partition(self.opening) if self.opening else (text, "", "")
        if mark:
            calls: list[ToolCall] = []
            for call_text in rest.split(self.opening):
                calls += self._read_marked(call_text, toolbox)
            return content, calls
        if not self.opening:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                if not isinstance(value, Mapping) or self.name_key not in value:
                    return text, []
                return "", [self._call(value, text, toolbox)]
        bare = toolbox.bare_call(text)
        return ("", [bare]) if bare else (text, [])

    def _read_marked(self, call_text: str, toolbox: Toolbox) -> list[ToolCall]:
        """The calls behind one opening mark, whose text ends at the next one."""
        body = call_text.lstrip()
        try:
            value, end = DECODER.raw_decode(body)
        except (ValueError, RecursionError) as error:
            return [unreadable(call_text, f"it is not JSON ({error})")]
        if self.closing and not body[end:].lstrip().startswith(self.closing):
            return [unreadable(call_text, f"{self.closing} is missing behind it")]
        call_objects = value if isinstance(value, list) else [value]
        return [self._call(item, body[:end], toolbox) for item in call_objects] or [
            unreadable(call_text, "the list is empty")
        ]

    def _call(self, value: object, raw: str, toolbox: Toolbox) -> ToolCall:
        if not isinstance(value, Mapping):
            return unreadable(raw, "it is not a JSON object")
        return toolbox.call(value.get(self.name_key), value.get(self.arguments_key, {}), raw)


def learn(call_text: str) -> CallFormat | None:
    """The format of one call of the probe's tool; None = it is not JSON with a name and arguments.

    written: what the template wrote between the content and the end of the turn.
    """
    for start, character in enumerate(call_text):
        if character not in "[{":
            continue
        try:
            value, end = DECODER.raw_decode(call_text, start)
        except ValueError:
            continue
        call = value[0] if isinstance(value, list) and value else value
        keys = _keys(call) if isinstance(call, Mapping) else None
        if keys:
            return CallFormat(call_text[:start].strip(), call_text[end:].strip(), *keys)
    return None


def _keys(call: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keys of the name and of the arguments."""
    name_keys = [key for key, value in call.items() if value == PROBE_NAME]
    arguments_keys = [key for key, value in call.items() if value == PROBE_ARGUMENTS]
    return (name_keys[0], arguments_keys[0]) if name_keys and arguments_keys else None


def probe_calls(
    call_ids: Sequence[str], names: Sequence[str], arguments: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Calls as messages of the assistant have them."""
    ids_and_names = zip(call_ids, names, strict=True)
    return [call_message(call_id, name, dict(arguments)) for call_id, name in ids_and_names]
