"""What cannot be read as a tokenizer, or has tokens that the model lacks, is one sentence."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import transformers

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.local.checks.prompt_lengths import check_embedding_rows
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.tokens import end_token_ids, load_tokenizer, tokenize_prompts
from rollcast.tasks.vocabulary import read_num_rows
from testkit.tiny_model import VOCABULARY, make_tiny_model


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder)
    return folder


def test_a_whole_tokenizer_is_read(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(Model(path=str(tiny_model)))
    assert tokenizer.decode(tokenizer("1+2=")["input_ids"]) == "1+2="


def test_code_of_a_model_folder_never_runs(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    marker = tmp_path / "ran"
    (folder / "brought.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    brought = {
        "config.json": {"AutoConfig": "brought.Config", "AutoModelForCausalLM": "brought.Net"},
        "tokenizer_config.json": {"AutoTokenizer": ["brought.Slow", "brought.Fast"]},
    }
    for file, classes in brought.items():
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | {"auto_map": classes}))
        model = Model(path=str(folder))
        with suppress(UserError):  # or read by Transformers' own class
            end_token_ids(model, load_tokenizer(model))
    assert not marker.exists()


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_one_sentence(
    tiny_model: Path, tmp_path: Path, file: str, part: float
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: int(part * len(whole))])
    if file == "config.json":  # without it, the class named in tokenizer_config.json would do
        (folder / "tokenizer_config.json").unlink()
    with pytest.raises(
        UserError, match=rf"model\.path = {folder}: no tokenizer can be read there"
    ) as caught:
        load_tokenizer(Model(path=str(folder)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", ["[]", "null", "1", '{"model": {"type": "none"}}', '{"model": []}']
)
def test_valid_json_that_is_no_tokenizer_is_one_sentence(
    tiny_model: Path, tmp_path: Path, content: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(content)))
    with pytest.raises(UserError, match="no tokenizer can be read there"):
        load_tokenizer(Model(path=str(folder)))


NUM_ADDED = 20
PROMPTS = {
    # Text of a prompt -> the first added token in it without an embedding
    "1+1=": None,
    "<tool0>": None,
    "a<tool6>b": None,
    "<tool7>": "<tool7>",
    "a<tool7>b": "<tool7>",
    "1+1=<tool19>": "<tool19>",
    "<tool0><tool12>": "<tool12>",
    "a line\n<tool8>\n": "<tool8>",
    "<tool 7>": None,
    "<tool20>": None,
    "tool7>": None,
    "a" * 60 + "<tool9>" + "b" * 60: "<tool9>",
}


@pytest.fixture(scope="module")
def with_added_tokens(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer has 57 tokens and 20 added ones, the model 64 rows: <tool7> is the first
    without one.
    """
    folder = tmp_path_factory.mktemp("added") / "model"
    shutil.copytree(tiny_model, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) + 7 == VOCABULARY
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [f"<tool{number}>" for number in range(NUM_ADDED)]}
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("text", "refused"), PROMPTS.items())
def test_a_prompt_with_a_token_that_has_no_embedding_is_refused(
    with_added_tokens: Path, text: str, refused: str | None
) -> None:
    prompt = Prompt("a", "d", text, '"1"', "exact")
    tokenizer = load_tokenizer(Model(path=str(with_added_tokens)))
    read = TokenizerFile.read(with_added_tokens, "model")
    assert read is not None
    split = PromptSplit([prompt], [])
    if refused is None:
        kept, _ = tokenize_prompts(tokenizer, [prompt], 200)
        assert max(kept[0].token_ids) < VOCABULARY
        check_embedding_rows(str(with_added_tokens), split, read)
        return
    sentence = (
        rf"model\.path = {with_added_tokens}: the tokenizer makes token \d+ of '{refused}' in the "
        r"prompt '"
    )
    with pytest.raises(UserError, match=sentence):
        tokenize_prompts(tokenizer, [prompt], 200)
    for split in (
        PromptSplit([prompt], []),
        PromptSplit([], [prompt]),
        PromptSplit([], [], downstream={"d": [prompt]}),
    ):
        with pytest.raises(UserError, match=sentence):
            check_embedding_rows(str(with_added_tokens), split, read)


def test_rows_are_those_of_the_text_model() -> None:
    assert read_num_rows({"vocab_size": 7}) == 7
    assert read_num_rows({"vocab_size": 9, "text_config": {"vocab_size": 7}}) == 7
    assert read_num_rows({"vocab_size": 9, "text_config": {}}) == 9
    assert read_num_rows({"text_config": None}) is None
