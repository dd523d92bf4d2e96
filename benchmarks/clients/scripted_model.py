"""A model that answers with a given tool call or a given text, sampled like any other: made on the spot.

    end of the prompt -> <tool_call> | the answer        two to one
    <tool_call> -> the call -> </tool_call> -> <|im_end|>
    the answer -> <|im_end|>

Each next token depends on the last one alone: the only layer adds nothing, and the rows of the head are the embeddings
of the tokens before. Call and answer are one token each, so that their texts become the same tokens again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testkit.chat_tokenizers import SPECIAL_TOKENS, TEMPLATES, WHOLE_TOKENS

ROOT = Path(__file__).parents[2]
VOCABULARY = 4_000
HIDDEN_SIZE = 128
LOGIT = 30.0
"""Logit of the next token. Others have 0, or a fraction by chance: embeddings are random directions."""
CALL_SHARE = 2 / 3


def write_scripted_model(folder: Path, tool: str, arguments: Mapping[str, Any], answer: str, max_length: int) -> None:
    """Write config, weights and tokenizer with the format of Qwen3."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    call = f'\n{{"name": {json.dumps(tool)}, "arguments": {json.dumps(arguments)}}}\n'
    tokenizer = _make_tokenizer((call, answer))
    tokenizer.save_pretrained(folder)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in (call, answer, "<tool_call>", "</tool_call>")}
    end = tokenizer.eos_token_id
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN_SIZE,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=max_length,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        embeddings = torch.nn.functional.normalize(torch.randn(len(tokenizer), HIDDEN_SIZE), dim=1)
        model.model.embed_tokens.weight.copy_(embeddings * math.sqrt(HIDDEN_SIZE))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        head = torch.zeros(len(tokenizer), HIDDEN_SIZE)
        (begin,) = {tokenizer(text, add_special_tokens=False).input_ids[-1] for text in ("assistant\n",)}
        steps = [
            (begin, ids["<tool_call>"], math.log(CALL_SHARE / (1 - CALL_SHARE))),
            (begin, ids[answer], 0.0),
            (ids["<tool_call>"], ids[call], 0.0),
            (ids[call], ids["</tool_call>"], 0.0),
            (ids["</tool_call>"], end, 0.0),
            (ids[answer], end, 0.0),
        ]
        for before, after, more in steps:
            # A hidden state has the length of the square root of its size.
            head[after] += embeddings[before] * (LOGIT + more) / math.sqrt(HIDDEN_SIZE)
        model.lm_head.weight.copy_(head)
    model.save_pretrained(folder)


def _make_tokenizer(replies: tuple[str, ...]) -> Any:
    """Byte-level BPE trained on the repository's documents, so that long prompts of agents become few tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = Tokenizer(models.BPE())
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    pages = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", *sorted((ROOT / "testkit").glob("*.py"))]
    text.train_from_iterator((page.read_text() for page in pages), trainer)
    text.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS["qwen3"]])
    text.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in (*WHOLE_TOKENS["qwen3"], *replies)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = TEMPLATES["qwen3"]
    return tokenizer
