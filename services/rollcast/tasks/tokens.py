"""Prompts as token ids, with the model's chat template where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.tasks.prompts import Prompt


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    chat_template: Any
    eos_token_id: int | None

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...
    def __call__(self, text: str, **options: Any) -> Any: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    prompt: Prompt
    token_ids: tuple[int, ...]


def load_tokenizer(model: Model) -> Tokenizer:
    """The tokenizer of the model's folder or hub name. Raises UserError where it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return cast(Tokenizer, AutoTokenizer.from_pretrained(model.path, trust_remote_code=model.trust_remote_code))
    except Exception as error:  # a broken tokenizer.json is a bare Exception, other files are whatever they break
        raise UserError(
            f"model.path = {model.path}: no tokenizer can be read there ({' '.join(str(error).split())[:200]}); "
            "give the folder of a Hugging Face model"
        ) from error


def tokenize(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Token ids of one prompt: a user's turn of the chat template, or the bare text of a model without one."""
    if tokenizer.chat_template:
        rendered = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        return tuple(tokenizer(rendered, add_special_tokens=False)["input_ids"])
    return tuple(tokenizer(text)["input_ids"])


def tokenize_prompts(
    tokenizer: Tokenizer, prompts: Sequence[Prompt], max_prompt_tokens: int
) -> tuple[list[TokenizedPrompt], int]:
    """The prompts that fit, and how many were skipped because they are longer than `max_prompt_tokens` (or empty)."""
    tokenized = [TokenizedPrompt(prompt, tokenize(tokenizer, prompt.text)) for prompt in prompts]
    kept = [item for item in tokenized if 0 < len(item.token_ids) <= max_prompt_tokens]
    return kept, len(tokenized) - len(kept)
