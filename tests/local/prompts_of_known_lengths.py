"""A run whose prompts have known lengths, and what trainer and check say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local.checks.check import Start
from rollcast.local.checks.checklist import check_start
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import load_tokenizer, tokenize
from rollcast.trainer.control.prompt_book import PromptBook
from tests.cli.mistakes import CAUSAL, byte_tokenizer

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif "
    "%}<|assistant|>\n"
)


def run(
    folder: Path, limit: int, *, template: str | None = None, **prompt_format: Any
) -> RunConfig:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CAUSAL))
    (model / "model.safetensors").write_bytes(b"0" * 64)
    (model / "tokenizer.json").write_text(byte_tokenizer())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | (
        {"chat_template": template} if template else {}
    )
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    rows = folder / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"prompt": f"{'é' * n} + 1?", "answer": "1"}) + "\n" for n in range(3, 11)
        )
    )
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
            PromptBook(
                prompts,
                tokenizer,
                max_prompt_tokens=limit,
                prompt_format=config.tasks.prompt_format,
            )
    except UserError:
        return True
    return False


def check_refuses(config: RunConfig) -> str:
    try:
        check_start(Start(config))
    except UserError as error:
        return str(error)
    return ""


def check_edge(folder: Path, template: str | None, **prompt_format: Any) -> None:
    """The check refuses a limit exactly if the trainer would, on both sides
    of the longest prompt.
    """
    config = run(folder, 400, template=template, **prompt_format)
    split, tokenizer = load(config.tasks), load_tokenizer(config.model)
    parts = (split.train, split.held_out)
    edge = max(
        min(len(tokenize(tokenizer, one.messages, config.tasks.prompt_format)) for one in part)
        for part in parts
    )
    for limit in (edge - 1, edge):
        config = run(folder, limit, template=template, **prompt_format)
        assert trainer_refuses(config) is (limit < edge)
        said = check_refuses(config)
        assert f"set at least {edge}" in said if limit < edge else said == ""
