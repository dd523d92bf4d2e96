"""The task of a model with random weights: half of its answers are right from the start, and they
end.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig

from rollcast.config.verifiers import FunctionVerifier
from testkit.gpu import first_token, models


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("t4 t7", 1.0),
        ("t0", 1.0),
        ("t151935 t2", 0.0),
        ("", 0.0),
        (" t12", 1.0),
        ("I think: t2", 0.0),
        ("t2x", 0.0),
    ],
)
def test_an_answer_is_right_if_it_begins_with_an_even_token(completion: str, reward: float) -> None:
    assert first_token.grade(completion, {}) == reward


def test_the_verifier_is_named_as_a_users_own_file_is() -> None:
    FunctionVerifier(name="first-token", code=f"{Path(first_token.__file__)}:grade")


def test_every_token_of_the_model_is_a_word_and_some_end_an_answer(tmp_path: Path) -> None:
    model = models.random_model(models.SMALL, torch.device("cpu"))
    first_token.write_model(tmp_path, model, end_stride=20)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = [0, 7, 210, 20, 19]
    text = tokenizer.decode(ids)
    assert text.split() == [f"t{number}" for number in ids]
    assert tokenizer(text)["input_ids"] == ids
    ends = GenerationConfig.from_pretrained(tmp_path).eos_token_id
    assert ends == list(range(20, 211, 20))


def test_prompts_are_rows_of_the_vocabulary(tmp_path: Path) -> None:
    first_token.write_rows(tmp_path / "rows.jsonl", 211)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len({row["prompt"] for row in rows}) == first_token.ROWS
    assert all(int(word[1:]) < 211 for row in rows for word in row["prompt"].split())
