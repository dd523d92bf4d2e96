"""A tiny model that calls a tool: a turn is a call or an answer, then the end of the turn."""

from __future__ import annotations

from pathlib import Path

from testkit.chat_tokenizers import load_template, make_tokenizer
from testkit.next_token_model import write_next_token_model

CALL = '<call>{"name": "step", "arguments": {}}</call>'
ANSWER = "done"
LOGIT = 12.0
"""A token that shall follow has this logit; some hundred others have about 1."""
MARKS = ("<pad>", "<|tools|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")


def make_calling_model(folder: Path, *, max_length: int) -> None:
    """Write config, float32 weights and tokenizer of a Qwen3."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {byte: index for index, byte in enumerate(alphabet)}
    text = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    end_tokens = {"eos_token": "<|end|>", "pad_token": "<pad>"}
    tokenizer = make_tokenizer(text, MARKS, (CALL, ANSWER), **end_tokens)
    tokenizer.chat_template = load_template("calling")
    tokenizer.save_pretrained(folder)

    call, answer, assistant, end = tokenizer.convert_tokens_to_ids(
        [CALL, ANSWER, "<|assistant|>", "<|end|>"]
    )
    steps = [
        (assistant, call, LOGIT),
        # An answer has this logit if a call has LOGIT: about one turn in four answers
        (assistant, answer, 10.8),
        (call, end, LOGIT),
        (answer, end, LOGIT),
    ]
    write_next_token_model(folder, tokenizer, steps, hidden_size=64, max_length=max_length)
