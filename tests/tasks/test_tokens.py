"""What cannot be read as a tokenizer is one sentence, whichever library stumbles on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.tasks.tokens import load_tokenizer
from testkit.tiny_model import make_tiny_model


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder)
    return folder


def test_a_whole_tokenizer_is_read(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(Model(path=str(tiny_model)))
    assert tokenizer.decode(tokenizer("1+2=")["input_ids"]) == "1+2="


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_one_sentence(tiny_model: Path, tmp_path: Path, file: str, part: float) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: int(part * len(whole))])
    if file == "config.json":  # without it, the class named in tokenizer_config.json would do
        (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=rf"model\.path = {folder}: no tokenizer can be read there") as caught:
        load_tokenizer(Model(path=str(folder)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "null", "1", '{"model": {"type": "none"}}', '{"model": []}'])
def test_valid_json_that_is_no_tokenizer_is_one_sentence(tiny_model: Path, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(content)))
    with pytest.raises(UserError, match="no tokenizer can be read there"):
        load_tokenizer(Model(path=str(folder)))
