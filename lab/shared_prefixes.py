"""What would training save if the sequences of a split episode shared the computation of their
common prefix?

    python -m lab.shared_prefixes

Episodes of 8 turns in Qwen3's format, whose template strips the thinking of earlier turns when the
user speaks again: there the next turn cannot extend the sampled tokens, and begins a training
sequence of its own. Counted are the tokens of all training sequences and those of their prefix
tree, for several shares of turns after which the user speaks (a tool answers after the others).
Writes lab/results/shared_prefixes.json.

Training does not merge them. A tree needs attention in which a token sees its own branch alone:
neither flash attention's bounds of packed sequences nor a causal kernel express that, and a kernel
with a mask for every pair would be another one than that of all other sequences. Merged without it,
tokens would see other branches: not exact.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from rollcast.chat.base import ChatMessage, ChatRenderer
from rollcast.chat.make import make_renderer
from rollcast.chat.messages import assistant_message
from rollcast.config.model import Model
from testkit.chat_tokenizers import make_chat_tokenizer
from testkit.record import LAB_RESULTS, write_result

EPISODES = 40
TURNS = 8
SYSTEM_CHARACTERS = 1_000
THOUGHT_CHARACTERS = 1_200
REPLY_CHARACTERS = 400
"""Length of a tool's or a user's answer. Lengths are those of a short episode; only their ratios
matter."""
USER_SHARES = (0.0, 0.25, 1.0)
SEED = 3
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
    }
]


def some_words(draw: random.Random, characters: int) -> str:
    return "".join(draw.choice("abcdefgh ") for _ in range(characters)).strip() or "a"


def sequences_of(
    renderer: ChatRenderer, tokenizer: Any, draw: random.Random, user_share: float
) -> list[list[int]]:
    """The training sequences of one episode, prompts included."""
    messages: list[ChatMessage] = [
        {"role": "system", "content": some_words(draw, SYSTEM_CHARACTERS)},
        {"role": "user", "content": "begin"},
    ]
    sequences = [renderer.prompt(messages, TOOLS)]
    for turn in range(TURNS):
        before = sequences[-1]
        thought = some_words(draw, THOUGHT_CHARACTERS)
        call = (
            f'<think>\n{thought}\n</think>\n\n<tool_call>\n{{"name": "add", "arguments": '
            f"{{}}}}\n</tool_call><|im_end|>"
        )
        sampled = tokenizer.encode(call, add_special_tokens=False)
        answer = some_words(draw, REPLY_CHARACTERS)
        call_ids = [f"call{turn:05}"]
        replies: list[ChatMessage] = [
            {"role": "tool", "name": "add", "tool_call_id": call_ids[0], "content": answer}
        ]
        if draw.random() < user_share:
            replies.append({"role": "user", "content": answer})
        given = renderer.next_turn(before, sampled, replies, TOOLS)
        messages += [assistant_message(renderer.parse(before, sampled, TOOLS), call_ids), *replies]
        sequences[-1] = before + sampled
        if turn + 1 == TURNS:
            break
        if given is None:
            sequences.append(renderer.prompt(messages, TOOLS))
        else:
            sequences[-1] += given
    return sequences


def num_tree_tokens(sequences: Sequence[Sequence[int]]) -> int:
    """Tokens of the prefix tree: in sorted order each sequence adds the tokens that it does not
    share with the last.
    """
    total = 0
    previous: Sequence[int] = ()
    for sequence in sorted(map(tuple, sequences)):
        shared = 0
        for one, other in zip(previous, sequence, strict=False):
            if one != other:
                break
            shared += 1
        total += len(sequence) - shared
        previous = sequence
    return total


def main() -> int:
    tokenizer = make_chat_tokenizer("qwen3")
    renderer = make_renderer(Model(path="/model"), tokenizer)
    rows = []
    for user_share in USER_SHARES:
        draw = random.Random(SEED)
        episodes = [sequences_of(renderer, tokenizer, draw, user_share) for _ in range(EPISODES)]
        tokens = sum(len(sequence) for sequences in episodes for sequence in sequences)
        tree = sum(map(num_tree_tokens, episodes))
        rows.append(
            {
                "turns_answered_by_the_user": user_share,
                "sequences_per_episode": sum(map(len, episodes)) / EPISODES,
                "tokens": tokens,
                "tokens_of_the_tree": tree,
                "saved": round(1 - tree / tokens, 3),
            }
        )
    print(json.dumps(rows, indent=2))
    write_result(
        "shared_prefixes", {"turns": TURNS, "episodes": EPISODES, "rows": rows}, LAB_RESULTS
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
