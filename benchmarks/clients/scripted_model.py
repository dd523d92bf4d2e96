"""A model that answers with a given tool call or a given text, sampled like any other: made on the
spot.

    end of the prompt -> <tool_call> | the answer        by the share of calls
    <tool_call> -> the call -> </tool_call> -> <|im_end|>
    the answer -> <|im_end|>

Call and answer are one token each, so that their texts become the same tokens again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testkit.chat_tokenizers import SPECIAL_TOKENS, TEMPLATES, WHOLE_TOKENS
from testkit.next_token_model import write_next_token_model

ROOT = Path(__file__).parents[2]
VOCABULARY = 4_000
LOGIT = 30.0
"""Logit of the next token, among thousands of others."""


def write_scripted_model(
    folder: Path,
    tool: str,
    arguments: Mapping[str, Any],
    answer: str,
    max_length: int,
    call_share: float = 2 / 3,
) -> None:
    """Write config, weights and tokenizer with the format of Qwen3."""
    call = f'\n{{"name": {json.dumps(tool)}, "arguments": {json.dumps(arguments)}}}\n'
    tokenizer = _make_tokenizer((call, answer))
    tokenizer.save_pretrained(folder)
    ids = {
        name: tokenizer.convert_tokens_to_ids(name)
        for name in (call, answer, "<tool_call>", "</tool_call>")
    }
    end = tokenizer.eos_token_id
    (begin,) = tokenizer("assistant\n", add_special_tokens=False).input_ids[-1:]
    begins = {ids["<tool_call>"]: call_share, ids[answer]: 1 - call_share}
    steps = [
        *((begin, token, LOGIT + math.log(share)) for token, share in begins.items() if share),
        (ids["<tool_call>"], ids[call], LOGIT),
        (ids[call], ids["</tool_call>"], LOGIT),
        (ids["</tool_call>"], end, LOGIT),
        (ids[answer], end, LOGIT),
    ]
    write_next_token_model(folder, tokenizer, steps, hidden_size=128, max_length=max_length)


def _make_tokenizer(replies: tuple[str, ...]) -> Any:
    """Byte-level BPE trained on the repository's documents, so that long prompts of agents become
    few tokens.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = Tokenizer(models.BPE())
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False
    )
    pages = [
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "README.md",
        *sorted((ROOT / "testkit").glob("*.py")),
    ]
    text.train_from_iterator((page.read_text() for page in pages), trainer)
    text.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS["qwen3"]]
    )
    text.add_tokens(
        [
            AddedToken(token, special=False, normalized=False)
            for token in (*WHOLE_TOKENS["qwen3"], *replies)
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATES["qwen3"]
    return tokenizer
