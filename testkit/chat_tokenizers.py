"""Tokenizers with a chat template and tools, and tiny random models that have one: made on the
spot, no network.

    qwen3      format of the renderer `qwen3`: ChatML, calls in <tool_call>, thinking stripped at
               the next user turn
    llama_3    format of the renderer `llama-3`: one call a turn, bare JSON; a date in the system
               turn
    chatml     ChatML with calls in <call>, which no renderer of the package knows; thinking stays
    inst       turns in [INST] and </s>; knows no tools and refuses the role

All are byte-level BPE with a few merges, so any text can be written and most can be written in
several ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Kind = Literal["qwen3", "llama_3", "chatml", "inst"]

SPECIAL_TOKENS: dict[Kind, tuple[str, ...]] = {
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama_3": (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
    ),
    "chatml": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "inst": ("<s>", "</s>", "[INST]", "[/INST]"),
}
WHOLE_TOKENS: dict[Kind, tuple[str, ...]] = {
    "qwen3": (
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "</think>",
    ),
    "llama_3": (),
    "chatml": ("<call>", "</call>"),
    "inst": (),
}
"""Tokens that a decoder keeps although it skips special ones."""
END_OF_TURN: dict[Kind, str] = {
    "qwen3": "<|im_end|>",
    "llama_3": "<|eot_id|>",
    "chatml": "<|im_end|>",
    "inst": "</s>",
}
PADDING: dict[Kind, str] = {
    "qwen3": "<|endoftext|>",
    "llama_3": "<|end_of_text|>",
    "chatml": "<|endoftext|>",
    "inst": "<s>",
}
MERGED_TEXT = (
    (
        'user assistant system tool {"name": "add", "arguments": {"a": 1, "b": 22}} {"parameters": '
        '{"text": "the answer"}}'
    ),
    (
        "the result is the number that the user wants; think about the answer, then call the tool "
        "with the numbers"
    ),
)
"""The BPE merges are trained on it."""


def load_template(name: str) -> str:
    return (Path(__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


TEMPLATES: dict[Kind, str] = {kind: load_template(kind) for kind in SPECIAL_TOKENS}
QWEN3_TEMPLATE = TEMPLATES["qwen3"]
LLAMA_3_TEMPLATE = TEMPLATES["llama_3"]
CHATML_TEMPLATE = TEMPLATES["chatml"]


def make_chat_tokenizer(kind: Kind, template: str | None = None) -> Any:
    """A fast Hugging Face tokenizer with the template of this kind, or with another template."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    text = Tokenizer(models.BPE())
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    # 256 bytes, and at most 96 merges: MERGED_TEXT may have fewer
    trainer = trainers.BpeTrainer(vocab_size=352, initial_alphabet=alphabet, show_progress=False)
    text.train_from_iterator(MERGED_TEXT, trainer)
    tokenizer = make_tokenizer(
        text,
        SPECIAL_TOKENS[kind],
        WHOLE_TOKENS[kind],
        eos_token=END_OF_TURN[kind],
        pad_token=PADDING[kind],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template or TEMPLATES[kind]
    return tokenizer


def make_tokenizer(
    text: Any, special_tokens: Sequence[str], whole_tokens: Sequence[str], **settings: Any
) -> Any:
    """A fast Hugging Face tokenizer of bytes around one of `tokenizers`, with added tokens."""
    from tokenizers import AddedToken, decoders, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    text.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special_tokens]
    )
    text.add_tokens([AddedToken(token, special=False, normalized=False) for token in whole_tokens])
    return PreTrainedTokenizerFast(tokenizer_object=text, **settings)


def write_chat_tokenizer(folder: Path, kind: Kind, template: str | None = None) -> int:
    """Write such a tokenizer; returns how many tokens it has."""
    tokenizer = make_chat_tokenizer(kind, template)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def make_tiny_chat_model(
    folder: Path, kind: Kind, *, seed: int = 0, max_length: int = 2_048
) -> None:
    """Write config, float32 weights and tokenizer of a random Qwen3 (Llama for `llama_3`); some 0.2
    million parameters.

    It ends a turn after some dozens of tokens, and writes any token of its vocabulary, malformed
    calls included.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_chat_tokenizer(kind)
    tokenizer.save_pretrained(folder)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": max_length,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": False,
        "initializer_range": 0.08,
    }
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("llama" if kind == "llama_3" else "qwen3", **shape),
        dtype=torch.float32,
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(4.0)
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
    model.save_pretrained(folder)
