"""What a tokenizer does not know, for each kind of vocabulary that models have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from rollcast.tasks.tokenizer_file import TokenizerFile
from tests.cli.mistakes import byte_tokenizer


def words() -> Any:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def pieces() -> Any:
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("▁", -1.0)], unk_id=0)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def letters() -> Any:
    """It drops what it does not know, without a token in its place."""
    return Tokenizer(models.BPE({"a": 0, "b": 1, " ": 2}, []))


def lower_case() -> Any:
    tokenizer = letters()
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


@pytest.mark.parametrize(
    ("made", "text", "not_known"),
    [
        (words, "a c b", {"c"}),
        (words, "a b", set()),
        (pieces, "a c", {"c"}),
        (letters, "acb é\n", {"c", "é"}),
        (letters, "ab\n", set()),
        (lower_case, "AB", set()),
        (lambda: Tokenizer.from_str(byte_tokenizer()), "aé²日本\n\t", set()),
    ],
    ids=["words", "all words", "pieces", "letters", "all letters", "lower case", "bytes"],
)
def test_what_is_not_known(made: Any, text: str, not_known: set[str], tmp_path: Path) -> None:
    made().save(str(tmp_path / "tokenizer.json"))
    tokenizer = TokenizerFile.read(tmp_path, "model")
    assert tokenizer is not None
    assert tokenizer.not_known(text) == not_known


def test_without_a_file_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert TokenizerFile.read(tmp_path, "model") is None
