"""The think block of a turn, for formats whose thinking stands between <think> and </think>."""

from collections.abc import Sequence

from rollcast.chat.template import ChatTokenizer
from rollcast.tasks.thinking import THINK_END, THINK_START, opens_thinking


def decode_tokens(tokenizer: ChatTokenizer, token_ids: Sequence[int]) -> str:
    """The text with its special tokens."""
    return tokenizer.decode(list(token_ids), skip_special_tokens=False) if token_ids else ""


def split_reasoning(
    tokenizer: ChatTokenizer, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> tuple[str, str, bool]:
    """Reasoning, content, and whether the reasoning was begun and not ended."""
    text = decode_tokens(tokenizer, token_ids)
    # Tokens at a prompt's end in which an open <think> is looked for, with the white space behind
    # it
    if opens_thinking(decode_tokens(tokenizer, prompt_ids[-16:])):
        text = THINK_START + text
    stripped_text = text.lstrip()
    if not stripped_text.startswith(THINK_START):
        return "", text, False
    reasoning, end, content = stripped_text.removeprefix(THINK_START).partition(THINK_END)
    return reasoning.strip(), content, not end


def holds_thinking(
    tokenizer: ChatTokenizer, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> bool:
    """Whether a think block with words in it, ended or not, is part of the sequence."""
    _, *blocks = decode_tokens(tokenizer, [*prompt_ids, *token_ids]).split(THINK_START)
    return any(block.partition(THINK_END)[0].strip() for block in blocks)
