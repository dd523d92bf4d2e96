"""A task that a model with random weights can learn: its answer begins with an even token.

No model of random weights adds numbers, and a group whose answers are all wrong makes no step. Half
of its answers are right here from the start, so that every group has something to learn from. The
tokens are t0, t1, t2 and so on. Some of them end the answer, or every answer would be as long as
the budget, and truncated ones are not trained on.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

END_STRIDE = 297
"""One token in this many ends the answer: about 300 tokens on average."""
PROMPT_TOKENS = 8
_TOKEN = re.compile(r"\s*t(\d{1,6})(?!\S)")
ROWS = 2_000


def grade(completion: str, row: dict[str, Any]) -> float:
    """1 if the answer begins with a token of an even number; what a user's own verifier file looks
    like.
    """
    first = _TOKEN.match(completion)
    return float(first is not None and int(first[1]) % 2 == 0)


def write_rows(path: Path, vocabulary: int) -> None:
    """Prompts of random tokens, one a line."""
    rng = random.Random(0)
    rows = [
        " ".join(f"t{rng.randrange(vocabulary)}" for _ in range(PROMPT_TOKENS)) for _ in range(ROWS)
    ]
    path.write_text("".join(json.dumps({"prompt": row, "answer": ""}) + "\n" for row in rows))


def write_model(folder: Path, model: Any, *, end_stride: int = END_STRIDE) -> None:
    """Save the model with a tokenizer of one word for each of its tokens, and the tokens that end
    an answer.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    size = model.config.vocab_size
    words = Tokenizer(
        models.WordLevel({f"t{index}": index for index in range(size)}, unk_token="t0")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model.config.eos_token_id = end_stride
    model.config.pad_token_id = 0
    ends = list(range(end_stride, size, end_stride))
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=0)
    model.save_pretrained(folder)
    end = f"t{end_stride}"
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token=end, pad_token="t0").save_pretrained(
        folder
    )
