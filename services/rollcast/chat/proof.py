"""Conversations that show whether turns extend each other, tried before anything is sampled.

For each of them, turn after turn: the tokens of the answer as the template writes it, then
`next_turn`. The sequence must be the template's own rendering of the whole chat, token for token,
and show what the tools answered. Long ones and those of many turns are compared as text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rollcast.chat.base import ChatMessage, ChatRefusedError, ToolSchema
from rollcast.chat.bridge import TemplateBridge
from rollcast.chat.call_format import PROBE_ARGUMENTS, PROBE_NAME, PROBE_TOOL, probe_calls
from rollcast.tasks.thinking import THINK_END

BEGUN_THINKING = re.compile(r"<think>\s*(</think>\s*)?$")
"""How a prompt may begin the thinking of the next turn, or end it before it begins."""
CALL_IDS = ("probe0001", "probe0002")
"""Nine letters and digits: some templates accept no others."""
SYSTEM: ChatMessage = {"role": "system", "content": "You answer in short."}
QUESTION: ChatMessage = {"role": "user", "content": "How much is 17 · 3 − 9?"}
SECOND_QUESTION: ChatMessage = {
    "role": "user",
    "content": "Furthermore in Ελληνικά, 日本語 and 🐟?",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A turn of the assistant, and the messages after it."""

    assistant_message: ChatMessage
    replies: tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    opening: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...]
    steps: tuple[Step, ...]
    may_split: bool = False
    """The template may strip its thinking."""
    may_be_refused: bool = False
    """The template may know no such turn, such as one with two calls."""
    is_long: bool = False
    """Compared as text alone, or once: all its tokens would take seconds."""


def plain_conversations() -> Iterator[Conversation]:
    """Without tools."""
    answers = ("It is 42.", "Σαράντα δύο.")
    steps = tuple(
        Step({"role": "assistant", "content": assistant_message}, (SECOND_QUESTION,))
        for assistant_message in answers
    )
    yield Conversation((QUESTION,), (), steps)
    yield Conversation((SYSTEM, QUESTION), (), steps, may_be_refused=True)
    yield Conversation((_long(QUESTION),), (), tuple(map(_long_step, steps)), is_long=True)


def tool_conversations() -> Iterator[Conversation]:
    """With tools: one call a turn and then another question, two calls in one turn, a call after
    thinking.
    """
    tools = (PROBE_TOOL,)
    call = _make_call_step(1)
    two_calls = _make_call_step(2)
    thinking = _make_call_step(1, thought="17 · 3 is 51, so I ask.")
    closing = Step({"role": "assistant", "content": "It is 42."}, (SECOND_QUESTION,))
    yield Conversation((QUESTION,), tools, (call, call, closing, call))
    yield Conversation((SYSTEM, QUESTION), tools, (call, call), may_be_refused=True)
    yield Conversation((QUESTION,), tools, (two_calls, closing, call), may_be_refused=True)
    yield Conversation((QUESTION,), tools, (thinking, call, closing), may_split=True)
    # Calls of a conversation: a template that shows the newest results alone leaves out some of
    # these
    yield Conversation((QUESTION,), tools, (call,) * 12, is_long=True)
    long_steps = tuple(map(_long_step, (call, call, closing, call)))
    yield Conversation((_long(QUESTION),), tools, long_steps, is_long=True)


def check_extends(bridge: TemplateBridge, *, needs_tools: bool) -> None:
    """Raises ChatRefusedError with the reason that turns do not extend each other, as the end of
    "the template ...".
    """
    for conversation in plain_conversations():
        _check_conversation(bridge, conversation)
    if not needs_tools:
        return
    if bridge.call_format is None:
        raise ChatRefusedError(
            "writes no tool calls, or none that are JSON with a name and arguments"
        )
    if PROBE_NAME not in bridge.template.text([QUESTION], [PROBE_TOOL], begins_answer=True):
        raise ChatRefusedError("does not show the model its tools")
    for conversation in tool_conversations():
        _check_conversation(bridge, conversation)


def _make_call_step(num_calls: int, thought: str = "") -> Step:
    call_ids = CALL_IDS[:num_calls]
    calls = probe_calls(call_ids, [PROBE_NAME] * num_calls, PROBE_ARGUMENTS)
    assistant_message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    if thought:
        assistant_message["reasoning_content"] = thought
    replies = tuple(
        {
            "role": "tool",
            "name": PROBE_NAME,
            "tool_call_id": call_id,
            "content": f"result-of-{call_id} is 42 · 日本語",
        }
        for call_id in call_ids
    )
    return Step(assistant_message, replies)


def _long(message: ChatMessage) -> ChatMessage:
    """Append a long text that names the role; a message of calls stays as it is."""
    # Lines of about 20 characters and empty ones: a template that shortens answered messages
    # shortens this
    lines = "\n\n".join(f"line {number:4} of the {message['role']}" for number in range(500))
    return (
        {**message, "content": f"{message['content']}\n{lines}"} if message["content"] else message
    )


def _long_step(step: Step) -> Step:
    return Step(_long(step.assistant_message), tuple(map(_long, step.replies)))


def _check_conversation(bridge: TemplateBridge, conversation: Conversation) -> None:
    """One conversation from its first turn to its last, or to where its thinking is stripped."""
    messages = list(conversation.opening)
    tools = conversation.tools
    sequence = ""
    for step in conversation.steps:
        try:
            prompt_text = bridge.template.text(messages, tools, begins_answer=True)
            following = bridge.template.text(
                [*messages, step.assistant_message, *step.replies], tools, begins_answer=True
            )
        except ChatRefusedError as error:
            if conversation.may_be_refused:
                return
            raise ChatRefusedError(f"cannot write a probe conversation: {error}") from error
        for reply in step.replies:
            _check_shown(reply, following)
        if conversation.is_long and not all(
            line in following for line in str(step.assistant_message["content"]).splitlines()
        ):
            raise ChatRefusedError("leaves out or changes long turns of the assistant")
        opened = BEGUN_THINKING.search(prompt_text)
        expected_prefix = prompt_text[: opened.start()] if opened else prompt_text
        messages += [step.assistant_message, *step.replies]
        if not following.startswith(expected_prefix):
            if conversation.may_split:
                return
            if tools and step.replies[0]["role"] == "user":
                bridge.splits_at_questions = True
                sequence = ""
                continue
            raise ChatRefusedError("rewrites earlier turns when later ones follow")
        continuation = _after_thinking(
            opened.group() if opened else "", following.removeprefix(expected_prefix)
        )
        sequence = sequence or prompt_text
        if not conversation.is_long:
            _check_step(bridge, sequence, continuation, step, tools)
        sequence += continuation


def _after_thinking(opened: str, continuation: str) -> str:
    """The answer and what follows it, behind the think block that the prompt began.

    A template may leave an empty block out of the history. It stays in the sequence that was
    sampled.
    """
    if continuation.startswith(opened):
        return continuation.removeprefix(opened)
    return continuation if THINK_END in opened else f"{THINK_END}\n\n{continuation}"


def _check_shown(reply: ChatMessage, text: str) -> None:
    """By its first word: a template may write other letters as escapes."""
    if str(reply["content"]).split()[0] not in text:
        message_kind = "tool results" if reply["role"] == "tool" else "turns of the user"
        raise ChatRefusedError(f"leaves out or changes {message_kind}")


def _check_step(
    bridge: TemplateBridge,
    sequence_text: str,
    following: str,
    step: Step,
    tools: Sequence[ToolSchema],
) -> None:
    """The answer as the template writes it, sampled and cut off by length, is extended to the
    template's own text.
    """
    template = bridge.template
    prompt_ids = template.ids(sequence_text)
    answer_ids = template.ids(following.partition(bridge.end_text)[0])
    expected = template.ids(sequence_text + following)
    for sampled in ([*answer_ids, *bridge.closing_ids], answer_ids):
        bridge_ids = bridge.next_turn(prompt_ids, sampled, step.replies, tools)
        if bridge_ids is None or [*prompt_ids, *sampled, *bridge_ids] != expected:
            raise ChatRefusedError("does not let a turn extend the one before, token for token")
    turn = bridge.parse(prompt_ids, [*answer_ids, *bridge.closing_ids], tools)
    calls = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in step.assistant_message.get("tool_calls", ())
    ]
    if [(call.name, call.arguments) for call in turn.calls if not call.problem] != calls:
        raise ChatRefusedError("writes tool calls in a form that cannot be read back")
