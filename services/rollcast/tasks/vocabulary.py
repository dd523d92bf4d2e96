"""Tokens for which the model has no embedding: some tokenizers know more ids than the model has
rows.

Gemma 3 1B as published has 262,145 ids and 262,144 rows. A trainer would end at such a token, and
vLLM with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rollcast.config.errors import UserError

NUM_ROWS = "num_embedding_rows"
"""Attribute of a tokenizer that knows ids beyond them."""
MAX_SHOWN_CHARACTERS = 80


def read_num_rows(config: Mapping[str, Any]) -> int | None:
    """Rows of the embedding by a config.json, whose text model may be a part; None if they are not
    given.
    """
    text = config.get("text_config")
    rows = (text if isinstance(text, Mapping) else {}).get("vocab_size", config.get("vocab_size"))
    return rows if isinstance(rows, int) else None


def check_token_ids(tokenizer: Any, token_ids: Sequence[int], text: str) -> None:
    """Raises UserError if the model has no row for a token of `text`, a prompt."""
    rows = getattr(tokenizer, NUM_ROWS, None)
    if rows is not None and token_ids and (largest := max(token_ids)) >= rows:
        token = tokenizer.decode([largest], skip_special_tokens=False)
        raise without_row(tokenizer.name_or_path, token, largest, rows, text)


def without_row(path: str, token: str, token_id: int, rows: int, text: str) -> UserError:
    token_start = max(0, text.find(token))
    excerpt = text[max(0, token_start - MAX_SHOWN_CHARACTERS // 2) :][:MAX_SHOWN_CHARACTERS]
    return UserError(
        f"model.path = {path}: the tokenizer makes token {token_id} of {token!r} in the prompt "
        f"{excerpt!r}, and the model has embeddings for {rows} tokens, 0 to {rows - 1}; remove "
        f"{token!r} from the prompts, or give a model with a row for each token of its tokenizer"
    )
