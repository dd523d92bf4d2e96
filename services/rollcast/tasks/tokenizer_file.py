"""A model's tokenizer.json, read without Transformers: quick enough for a check before anything
starts.

It knows no chat template, so the count of a chat is that of the bare text's tokens.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILES = ("tokenizer_config.json", "chat_template.jinja")


class TokenizerFile:
    """Counts tokens, and finds what the vocabulary cannot spell."""

    def __init__(self, tokenizer: Any, folder: Path) -> None:
        self._tokenizer = tokenizer
        self._folder = folder
        self._unknown = _unknown_id(tokenizer, folder / TOKENIZER_FILE)
        self._dropped: dict[str, bool] = {}

    @classmethod
    def read(cls, folder: Path, model: str) -> "TokenizerFile | None":
        """`model`: the setting's value, for a sentence. None if the folder has no such file, or if
        this environment cannot read it. Raises UserError for a file that is broken."""
        file = folder / TOKENIZER_FILE
        if not file.is_file():
            return None
        try:
            from tokenizers import Tokenizer
        except ImportError:
            return None
        try:
            return cls(Tokenizer.from_file(str(file)), folder)
        except BaseException as error:
            # The library raises a bare Exception, or panics, which is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise UserError(
                f"model.path = {model}: no tokenizer can be read there "
                f"({' '.join(str(error).split())[:200]}); give the folder of a Hugging Face model"
            ) from error

    def count(self, text: str) -> int:
        """Tokens of the text alone, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def has(self, token: str) -> bool:
        return self._tokenizer.token_to_id(token) is not None

    def added_from(self, first_id: int) -> dict[str, int]:
        """The added tokens with this id or a later one: they are cut out of every text that holds
        them.
        """
        added = self._tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if number >= first_id}

    def special_tokens(self) -> list[str]:
        """The longest first."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return sorted((token.content for token in added if token.special), key=len, reverse=True)

    def not_known(self, text: str) -> set[str]:
        """Parts of the text that become the unknown token, and characters that vanish."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans = list(zip(encoding.ids, encoding.offsets, strict=True))
        unknown = {text[start:end] for number, (start, end) in spans if number == self._unknown}
        return unknown | {letter for letter in set(text) if self._drops(letter)}

    def _drops(self, letter: str) -> bool:
        """Whether the letter vanishes: no token and no unknown token stands for it."""
        if letter not in self._dropped:
            is_text = letter.isprintable() and not letter.isspace()
            self._dropped[letter] = is_text and self.count(letter) == 0
        return self._dropped[letter]

    @property
    def has_chat_template(self) -> bool:
        config, template = (self._folder / name for name in TEMPLATE_FILES)
        try:
            return template.is_file() or bool(json.loads(config.read_bytes()).get("chat_template"))
        except (OSError, ValueError, AttributeError, RecursionError):
            return False


def _unknown_id(tokenizer: Any, file: Path) -> int | None:
    """Id of the token for unknown text; None if the vocabulary has no such token."""
    for name in _unknown_names(tokenizer, file):
        if isinstance(name, str) and (token_id := tokenizer.token_to_id(name)) is not None:
            return int(token_id)
    return None


def _unknown_names(tokenizer: Any, file: Path) -> Iterator[Any]:
    yield getattr(tokenizer.model, "unk_token", None)
    # Not the library's text of it, which takes four bytes for each id up to the largest.
    settings = json.loads(file.read_bytes())["model"]
    yield settings.get("unk_token")
    if isinstance(number := settings.get("unk_id"), int):  # a Unigram model names it by its place
        yield tokenizer.id_to_token(number)
