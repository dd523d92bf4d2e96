"""Whether a call can be made: its tool exists, and its arguments fit the tool's schema.

A problem is a sentence that the model reads as the answer to its call. All input was written by a
model, or by the author of a tool: nothing raises, and the work is bounded for any text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rollcast.chat.base import ToolCall, ToolSchema
from rollcast.chat.schema_check import find_misfit

MAX_CALLS_PER_TURN = 32
"""More calls in one turn are not made. Parallel calls of today's models are fewer than ten."""
MAX_ARGUMENT_VALUES = 10_000
"""Numbers, texts, lists and objects in the arguments of one call. Checking one against a schema
takes some 5 us."""
MAX_PROBLEM_CHARACTERS = 400
"""Length of a sentence for the model: long enough for the reason, short enough for its context."""
NAMED_OBJECT = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]{1,200})"')
"""The beginning of a call without marks around it, in the formats that have such calls."""


class Toolbox:
    """The tools of one turn, by name.

    It reads one turn: calls beyond the limit are counted and not looked at.
    """

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        functions = [cast(Mapping[str, Any], tool.get("function", tool)) for tool in tools]
        self._schemas = {
            str(function["name"]): function.get("parameters") for function in functions
        }
        self._num_calls = 0

    def call(self, name: object, arguments: object, raw: str) -> ToolCall:
        """The call, with the reason if it cannot be made."""
        self._num_calls += 1
        if self._num_calls > MAX_CALLS_PER_TURN:
            return ToolCall("", {}, "too many calls")
        if not isinstance(name, str) or not name:
            return unreadable(raw, "it has no name")
        clean = name[:MAX_PROBLEM_CHARACTERS].encode("utf-8", "replace").decode()
        if not isinstance(arguments, Mapping):
            problem = f"The arguments of {clean} are not a JSON object; write one."
            usable_arguments: Mapping[str, Any] = {}
        elif flaw := _flaw(arguments):
            problem = f"The arguments of {clean} cannot be used: {flaw}."
            usable_arguments = {}
        else:
            problem = self._problem(clean, arguments)
            usable_arguments = arguments
        return ToolCall(clean, usable_arguments, shorten_sentence(problem), raw)

    def bare_call(self, text: str) -> ToolCall | None:
        """A text that begins as a call of one of these tools but was not read as one; None = it is
        no call.
        """
        call_match = NAMED_OBJECT.match(text)
        if call_match is None or call_match.group(1) not in self._schemas:
            return None
        return unreadable(text, "it must be one JSON object with nothing before or after it")

    def _problem(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name not in self._schemas:
            # Tools that are named to a model that called another one
            tool_names = ", ".join(list(self._schemas)[:20]) or "none"
            return f"There is no tool {name!r}; the tools are: {tool_names}."
        misfit = find_misfit(arguments, self._schemas[name])
        return f"The arguments of {name} do not fit its schema: {misfit}." if misfit else ""


def unreadable(raw: str, reason: str) -> ToolCall:
    """A call that was begun but could not be read."""
    return ToolCall("", {}, shorten_sentence(f"The call could not be read: {reason}."), raw)


def bounded_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of a turn; those beyond the limit are one call with a problem."""
    if len(calls) <= MAX_CALLS_PER_TURN:
        return tuple(calls)
    sentence = (
        f"The turn has {len(calls)} calls; those after the first {MAX_CALLS_PER_TURN} were not "
        "made."
    )
    return (*calls[:MAX_CALLS_PER_TURN], ToolCall("", {}, sentence))


def shorten_sentence(sentence: str) -> str:
    """The sentence, cut if it quotes too much of the model's text."""
    if len(sentence) <= MAX_PROBLEM_CHARACTERS:
        return sentence
    return sentence[: MAX_PROBLEM_CHARACTERS - 3] + "..."


def _flaw(arguments: Mapping[str, Any]) -> str:
    """What no tool can take: too many values, too deep, not a number, half a character.

    Empty = nothing.
    """
    waiting: list[tuple[Any, int]] = [(arguments, 1)]
    num_values = 0
    # Lists and objects inside each other. Python's own limit is about 1,000, deeper than any tool
    # takes.
    max_argument_depth = 64
    while waiting:
        value, depth = waiting.pop()
        num_values += 1
        if num_values > MAX_ARGUMENT_VALUES:
            return f"they have more than {MAX_ARGUMENT_VALUES} values"
        if depth > max_argument_depth:
            return f"they are nested more than {max_argument_depth} deep"
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, Mapping | list):
            waiting += [(item, depth + 1) for item in inner]
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return "NaN, Infinity and halves of surrogate pairs are not allowed"
    return ""
