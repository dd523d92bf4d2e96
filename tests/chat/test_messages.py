"""A turn as a message: what the template writes of it after a split is what the model wrote."""

from __future__ import annotations

import pytest

from rollcast.chat.base import AssistantTurn
from rollcast.chat.make import make_renderer
from rollcast.chat.messages import assistant_message
from rollcast.config.model import Model
from testkit.chat_tokenizers import END_OF_TURN, Kind, make_chat_tokenizer

QUESTION = {"role": "user", "content": "question"}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
}
WRITTEN: list[tuple[Kind, str]] = [
    ("qwen3", "It is 3."),
    ("qwen3", "<think>\nhm\n</think>\n\nIt is 3."),
    ("qwen3", 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'),
    ("llama_3", '{"name": "add", "parameters": {"a": 1}}'),
    ("chatml", '<think>hm</think>I add.<call>{"name": "add", "arguments": {"a": "é"}}</call>'),
]


@pytest.mark.parametrize(("kind", "written"), WRITTEN)
def test_a_turn_is_rendered_again_as_it_was_written(kind: Kind, written: str) -> None:
    tokenizer = make_chat_tokenizer(kind)
    renderer = make_renderer(Model(path="/model"), tokenizer)
    prompt = renderer.prompt([QUESTION], [TOOL])
    sampled = tokenizer.encode(written + END_OF_TURN[kind], add_special_tokens=False)
    turn = renderer.parse(prompt, sampled, [TOOL])
    message = assistant_message(turn, [f"call{number:05}" for number in range(len(turn.calls))])
    result = {"role": "tool", "name": "add", "tool_call_id": "call00000", "content": "3"}
    given = renderer.next_turn(prompt, sampled, [result], [TOOL])
    assert given is not None
    assert renderer.prompt([QUESTION, message, result], [TOOL]) == [*prompt, *sampled, *given]


def test_a_call_that_cannot_be_read_stays_in_the_content() -> None:
    tokenizer = make_chat_tokenizer("qwen3")
    renderer = make_renderer(Model(path="/model"), tokenizer)
    written = tokenizer.encode(
        'I add.<tool_call>{"name": "add", </tool_call><|im_end|>', add_special_tokens=False
    )
    turn = renderer.parse(renderer.prompt([QUESTION], [TOOL]), written, [TOOL])
    assert assistant_message(turn, ["call00000"]) == {
        "role": "assistant",
        "content": 'I add.\n{"name": "add",',
    }


def test_each_call_has_an_id() -> None:
    with pytest.raises(ValueError, match="zip"):
        assistant_message(AssistantTurn("text"), ["call00000"])
