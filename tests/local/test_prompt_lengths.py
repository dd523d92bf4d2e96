"""A check before the start refuses a run for its prompts' lengths exactly if the trainer would."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local import prompt_lengths
from rollcast.local.preflight import check_files
from rollcast.tasks import tokens
from rollcast.tasks.prompts import load
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.tokens import load_tokenizer, tokenize
from rollcast.trainer.control.prompt_book import PromptBook
from tests.cli.mistakes import CAUSAL, byte_tokenizer

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}<|assistant|>\n"
)


def run(folder: Path, limit: int, *, template: str | None = None, **prompt_format: Any) -> RunConfig:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CAUSAL))
    (model / "model.safetensors").write_bytes(b"0" * 64)
    (model / "tokenizer.json").write_text(byte_tokenizer())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | ({"chat_template": template} if template else {})
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{'é' * n} + 1?", "answer": "1"}) + "\n" for n in range(3, 11)))
    data = {
        "run": "r",
        "folder": str(folder / "runs"),
        "model": {"path": str(model), "max_length": 512},
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "tasks": {
            "dataset": {"kind": "jsonl", "name": "rows", "path": str(rows)},
            "evaluation": {"num_prompts": 1},
            "prompt_format": prompt_format,
        },
        "recipe": {
            "prompts_per_step": 2,
            "max_prompt_tokens": limit,
            "max_completion_tokens": 64,
            "length_control": {"kind": "none"},
        },
        "budget": {"steps": 1},
    }
    return parse_run_config(data, source="test")


def trainer_refuses(config: RunConfig) -> bool:
    split, tokenizer = load(config.tasks), load_tokenizer(config.model)
    try:
        for prompts in (split.train, split.held_out):
            limit = config.recipe.max_prompt_tokens
            PromptBook(prompts, tokenizer, max_prompt_tokens=limit, prompt_format=config.tasks.prompt_format)
    except UserError:
        return True
    return False


def check_refuses(config: RunConfig) -> str:
    try:
        check_files(config)
    except UserError as error:
        return str(error)
    return ""


def counted_here(command: list[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:
    """What the program says that imports Transformers, which this process has imported: seconds for each look."""
    assert command[1:] == ["-m", tokens.__name__]
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr(sys, "stdin", io.StringIO(input))
        tokens.main()
    return subprocess.CompletedProcess(command, 0, output.getvalue(), "")


@pytest.mark.parametrize(
    ("template", "prompt_format", "in_a_program"),
    [(None, {}, True), (TEMPLATE, {}, False), (None, {"layout": "think"}, False)],
    ids=["no template", "template", "think"],
)
def test_at_the_edge_both_agree(
    template: str | None,
    prompt_format: dict[str, Any],
    in_a_program: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not in_a_program:
        instead = SimpleNamespace(run=counted_here, TimeoutExpired=subprocess.TimeoutExpired)
        monkeypatch.setattr(prompt_lengths, "subprocess", instead)
    config = run(tmp_path, 400, template=template, **prompt_format)
    split, tokenizer = load(config.tasks), load_tokenizer(config.model)
    parts = (split.train, split.held_out)
    edge = max(
        min(len(tokenize(tokenizer, one.messages, config.tasks.prompt_format)) for one in part) for part in parts
    )
    for limit in (edge - 1, edge):
        config = run(tmp_path, limit, template=template, **prompt_format)
        assert trainer_refuses(config) is (limit < edge)
        said = check_refuses(config)
        assert f"set at least {edge}" in said if limit < edge else said == ""


def test_what_the_template_refuses_is_told_if_it_had_to_be_asked(tmp_path: Path) -> None:
    said = check_refuses(run(tmp_path, 40, template=TEMPLATE, system="Be short."))
    assert said.startswith("tasks.prompt_format: the chat template refuses the prompt (no system message)")


def test_with_plenty_of_room_no_program_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_lengths, "_exact", lambda *_: pytest.fail("it was asked for the exact length"))
    assert check_refuses(run(tmp_path, 200, template=TEMPLATE)) == ""


def test_data_that_takes_too_long_to_look_at_is_a_caution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_lengths, "MAX_LOOK_SECONDS", 0.0)
    config = run(tmp_path, 3)
    split = load(config.tasks)
    split.held_out.clear()  # one prompt is looked at however little time there is
    tokenizer = TokenizerFile.read(tmp_path / "model", "model")
    assert tokenizer is not None
    (said,) = prompt_lengths.check_lengths(config.recipe, config.model, config.tasks.prompt_format, split, tokenizer)
    assert said.startswith("recipe.max_prompt_tokens = 3: none of the 1 shortest of 7 training prompts fits")


def test_prompts_that_no_setting_makes_fit_are_called_too_long(tmp_path: Path) -> None:
    config = run(tmp_path, 5)
    short = config.model_copy(update={"model": config.model.model_copy(update={"max_length": 9})})
    with pytest.raises(UserError, match=r"no more than model\.max_length = 9 fit with a completion: shorten"):
        check_files(short)
