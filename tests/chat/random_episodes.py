"""Random episodes, played against the tokenizer's `apply_chat_template` on the whole chat."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rollcast.chat.base import ChatRenderer
from rollcast.chat.bridge import SENTINEL
from rollcast.chat.make import make_renderer
from rollcast.config.model import Model
from testkit.chat_tokenizers import END_OF_TURN, Kind, make_chat_tokenizer

MOST_SPLITS = 0.05
"""Share of turns that may begin a new sequence although no thinking is stripped."""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds. Ünïcode.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "note": {"type": "string"}},
                "required": ["a"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "noop", "description": "Nothing.", "parameters": {"type": "object"}},
    },
]
ALPHABET = 'abc xyz 0123 {}[]"\\:,\n\t<>|/ éß Ωж 日本語 🐟👩‍👩‍👧 \u202e\u0301'
KINDS: tuple[Kind, ...] = ("qwen3", "llama_3", "chatml", "inst")
CALL_MARKS: dict[Kind, tuple[str, str, str]] = {
    "qwen3": ("<tool_call>\n", "\n</tool_call>", "arguments"),
    "llama_3": ("", "", "parameters"),
    "chatml": ("<call>", "</call>", "arguments"),
}
"""Text before and behind a call's JSON, and the key of its arguments."""
HAS_REASONING = ("qwen3", "chatml")


@dataclass
class Answer:
    """What the model of an episode writes in one turn."""

    token_ids: list[int]
    message: dict[str, Any] | None = None
    """The same as a message; None = the tokens are not what a template writes."""
    thought: str = ""
    num_calls: int = 0


@dataclass
class Tally:
    turns: int = 0
    compared: int = 0
    """Turns whose whole chat was compared with the template's rendering."""
    stripped: int = 0
    splits: list[str] = field(default_factory=list)
    malformed: int = 0

    def count_split(self, episode: str, thoughts: str, replies: list[dict[str, Any]]) -> None:
        if thoughts and any(reply["role"] == "user" for reply in replies):
            self.stripped += 1
        else:
            self.splits.append(episode)


@cache
def tokenizer_of(kind: Kind) -> Any:
    return make_chat_tokenizer(kind)


@cache
def renderer_of(kind: Kind) -> ChatRenderer:
    return make_renderer(Model(path="/model"), tokenizer_of(kind), needs_tools=kind != "inst")


def some_text(draw: random.Random, most: int = 40) -> str:
    return "".join(draw.choice(ALPHABET) for _ in range(draw.randint(1, most)))


def hostile_text(kind: Kind, draw: random.Random) -> str:
    """A tool's text, at times with the marks of the format, or of the bridge, inside it."""
    return (
        some_text(draw, 100)
        + draw.choice(["", "", END_OF_TURN[kind], SENTINEL])
        + some_text(draw, 100)
    )


def words(draw: random.Random) -> str:
    """A text that begins and ends with a letter, so that a template's trimming does not change
    it.
    """
    return f"w{some_text(draw)}w"


def canonical(kind: Kind, draw: random.Random) -> Answer:
    """An answer as the template writes it: text, or calls, perhaps after a thought."""
    tokenizer = tokenizer_of(kind)
    thought = words(draw).replace("<", "") if kind in HAS_REASONING and draw.random() < 0.4 else ""
    calls: list[dict[str, Any]] = []
    if kind != "inst" and draw.random() < 0.6:
        num_calls = 1 if kind == "llama_3" else draw.randint(1, 3)
        arguments = [{"a": draw.randint(-9, 9), "note": some_text(draw)} for _ in range(num_calls)]
        calls = [
            {
                "id": f"call{number:05}",
                "type": "function",
                "function": {"name": "add", "arguments": given},
            }
            for number, given in enumerate(arguments)
        ]
    content = "" if calls else words(draw).replace("<", "")
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    question = [{"role": "user", "content": "q"}]
    begun = rendered(kind, question, begins_answer=True)
    text = rendered(kind, [*question, message]).removeprefix(begun)
    body = text.partition(END_OF_TURN[kind])[0]
    if not thought:
        # A template may put an empty thought before the last answer, and leaves it out of the
        # history.
        body = body.removeprefix("<think>\n\n</think>\n\n")
    ids = tokenizer.encode(body + END_OF_TURN[kind], add_special_tokens=False)
    return Answer(ids, message, thought, len(calls))


def broken(kind: Kind, draw: random.Random) -> Answer:
    """An answer that no template writes: malformed calls, other tokens for the same text, random
    tokens, cut off.
    """
    tokenizer = tokenizer_of(kind)
    before, behind, key = CALL_MARKS.get(kind, ("", "", "arguments"))
    bad_calls = [
        '{"name": "add", "' + key + '": {"a": ',
        '{"name": "add", "' + key + '": {"a": "one"}}',
        '{"name": "unknown", "' + key + '": {}}',
        '{"name": "add"}',
        "[" * 3_000,
    ]
    style = draw.randrange(4)
    thought = ""
    if style == 0:
        ids = tokenizer.encode(before + draw.choice(bad_calls) + behind, add_special_tokens=False)
    elif style == 1:
        ids = [
            token
            for letter in some_text(draw)
            for token in tokenizer.encode(letter, add_special_tokens=False)
        ]
    elif style == 2:
        stops = set(renderer_of(kind).stop_token_ids)
        ids = [
            token
            for token in draw.choices(range(len(tokenizer)), k=draw.randint(0, 30))
            if token not in stops
        ]
        thought = "perhaps"  # a random token may open one
    else:
        thought = "an open thought" if kind in HAS_REASONING else ""
        ids = tokenizer.encode(
            f"<think>\n{thought}" if thought else words(draw), add_special_tokens=False
        )
    is_cut = style == 3 or draw.random() < 0.3
    end = tokenizer.encode(END_OF_TURN[kind], add_special_tokens=False)
    return Answer(ids if is_cut else [*ids, *end], None, thought)


def replies_to(kind: Kind, answer: Answer, draw: random.Random) -> list[dict[str, Any]]:
    if kind == "inst" or (answer.num_calls == 0 and draw.random() < 0.5):
        return [{"role": "user", "content": words(draw)}]
    return [
        {
            "role": "tool",
            "name": "add",
            "tool_call_id": f"call{number:05}",
            "content": hostile_text(kind, draw),
        }
        for number in range(max(answer.num_calls, 1))
    ]


def rendered(kind: Kind, messages: list[dict[str, Any]], *, begins_answer: bool = False) -> str:
    tools = None if kind == "inst" else TOOLS
    tokenizer = tokenizer_of(kind)
    return str(
        tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=begins_answer, tokenize=False
        )
    )


def end_of_chat(kind: Kind, answer: Answer, replies: list[dict[str, Any]]) -> str:
    """What the template writes behind an answer, by another answer."""
    calls = [
        {
            "id": reply["tool_call_id"],
            "type": "function",
            "function": {"name": "add", "arguments": {}},
        }
        for reply in replies
        if reply["role"] == "tool"
    ]
    other: dict[str, Any] = {"role": "assistant", "content": "other"}
    if calls:
        other["tool_calls"] = calls
    text = rendered(kind, [{"role": "user", "content": "q"}, other, *replies], begins_answer=True)
    begun = rendered(kind, [{"role": "user", "content": "q"}], begins_answer=True)
    return text[len(begun) :].partition(END_OF_TURN[kind])[2]


def play(kind: Kind, seed: int, tally: Tally) -> None:
    """One episode, until it ends or splits."""
    draw = random.Random(seed)
    renderer = renderer_of(kind)
    tokenizer = tokenizer_of(kind)
    tools = [] if kind == "inst" else TOOLS
    history: list[dict[str, Any]] = [{"role": "user", "content": words(draw)}]
    if draw.random() < 0.5:
        history.insert(0, {"role": "system", "content": words(draw)})
    prompt_ids = renderer.prompt(history, tools)
    assert prompt_ids == tokenizer.encode(
        rendered(kind, history, begins_answer=True), add_special_tokens=False
    )
    is_canonical = True
    thoughts = ""
    for _ in range(draw.randint(1, 5)):
        answer = canonical(kind, draw) if draw.random() < 0.6 else broken(kind, draw)
        replies = replies_to(kind, answer, draw)
        thoughts += answer.thought
        turn = renderer.parse(prompt_ids, answer.token_ids, tools)
        if answer.message is not None:
            check_parsed(turn, answer.message)
        tally.malformed += sum(bool(call.problem) for call in turn.calls)
        tally.turns += 1
        given = renderer.next_turn(prompt_ids, answer.token_ids, replies, tools)
        if given is None:
            tally.count_split(f"{kind} {seed}", thoughts, replies)
            return
        check_given(kind, answer, replies, given)
        prompt_ids = [*prompt_ids, *answer.token_ids, *given]
        is_canonical = is_canonical and answer.message is not None
        if is_canonical:
            history += [answer.message or {}, *replies]
            whole = rendered(kind, history, begins_answer=True)
            assert prompt_ids == tokenizer.encode(whole, add_special_tokens=False)
            tally.compared += 1


def check_given(
    kind: Kind, answer: Answer, replies: list[dict[str, Any]], given: list[int]
) -> None:
    """The tokens between two turns are what the template writes there; a turn that was cut off is
    ended first.
    """
    tokenizer = tokenizer_of(kind)
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN[kind])
    behind = end_of_chat(kind, answer, replies)
    text = tokenizer.decode(given)
    assert text.endswith(behind)
    is_cut = answer.token_ids[-1:] != [end]
    assert text.removesuffix(behind) in (
        (END_OF_TURN[kind], f"</think>{END_OF_TURN[kind]}") if is_cut else ("",)
    )


def check_parsed(turn: Any, message: dict[str, Any]) -> None:
    assert turn.reasoning == message.get("reasoning_content", "").strip()
    assert turn.content == message["content"].strip()
    expected = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
    assert [(call.name, call.arguments) for call in turn.calls] == expected
    assert [call.problem for call in turn.calls] == [""] * len(expected)


def check_episodes(kind: Kind, num_episodes: int) -> None:
    """The tokens of a turn extend those of the turn before, bit for bit, as the model's template
    has them.
    """
    tally = Tally()
    for seed in range(num_episodes):
        play(kind, seed, tally)
    assert tally.turns > num_episodes
    assert tally.compared > num_episodes // 4
    assert len(tally.splits) <= MOST_SPLITS * tally.turns, tally.splits[:5]
    assert (tally.stripped > 0) == (kind == "qwen3")
    assert (tally.malformed > 0) == (kind != "inst")
