"""The training of the demo's base model, as a process with torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.tasks.arithmetic import CHARACTERS
from rollcast.tasks.tokens import load_tokenizer

TINY = BaseModel(steps=3, batch=4, measured_prompts=4)


def test_the_model_is_trained_once_and_its_characters_are_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLCAST_CACHE", str(tmp_path / "cache"))
    shares: list[float] = []
    folder = ensure_base_model(TINY, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert 0.0 <= json.loads((folder / "base_model.json").read_text())["pass_rate"] <= 1.0
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [
        folder.name
    ]
    shares.clear()
    assert ensure_base_model(TINY, shares.append) == folder
    assert shares == []

    tokenizer: Any = load_tokenizer(Model(path=str(folder), max_length=128))
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert len(ids) == len(set(ids)) == len(CHARACTERS)
    assert tokenizer.decode(ids) == CHARACTERS
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == CHARACTERS


def test_a_training_that_fails_leaves_no_half_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLCAST_CACHE", str(tmp_path))
    broken = BaseModel(steps=1, batch=0, measured_prompts=1)
    with pytest.raises(UserError, match="training of the demo's base model failed"):
        ensure_base_model(broken, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == [f".{broken.key}.lock"]
