"""What `rollcast up` fills in, by files written here; tests/system/test_up.py runs what comes of
it.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.recipe import Interruption
from rollcast.config.resolved import differences
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.local import left_out
from rollcast.local.checks.check import Start
from rollcast.local.checks.checklist import check_start
from rollcast.local.left_out import filled_in
from rollcast.local.preflight import load_to_start
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import render

ROOT = Path(__file__).parents[2]


def model(folder: Path, length: int | None, *markers: str) -> Path:
    folder.mkdir()
    known: dict[str, Any] = {} if length is None else {"max_position_embeddings": length}
    (folder / "config.json").write_text(json.dumps(known))
    (folder / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"content": marker} for marker in markers]})
    )
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def minimal(
    folder: Path, *, length: int | None, markers: tuple[str, ...] = (), rows: int = 300, **more: Any
) -> Path:
    """The shipped minimal file, on a model and rows made here."""
    settings = yaml.safe_load((ROOT / "configs" / "minimal.yaml").read_text())
    settings["model"] = {"path": str(model(folder / "model", length, *markers))} | more.pop(
        "model", {}
    )
    settings["folder"] = str(folder / "runs")
    data = folder / "rows.jsonl"
    data.write_text("".join(f'{{"prompt": "What is {n}?", "answer": "1"}}\n' for n in range(rows)))
    settings["tasks"] = {"dataset": settings["tasks"]["dataset"] | {"path": str(data)}} | more.pop(
        "tasks", {}
    )
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(settings | more))
    return file


def test_a_large_model_keeps_the_papers_lengths(tmp_path: Path) -> None:
    config, _ = load_to_start(minimal(tmp_path, length=40_960, markers=("</think>",), rows=20_000))
    assert config.model.max_length == 16_384
    assert (
        config.recipe
        == parse_run_config({"run": "r", "model": {"path": "m"}}, source="test").recipe
    )
    assert config.tasks.evaluation.num_prompts == 1_000
    assert (config.redis.port, config.rpc.port) == (0, 0)


def test_thinking_is_cut_in_the_papers_proportions(tmp_path: Path) -> None:
    config, _ = load_to_start(minimal(tmp_path, length=8_192, markers=("<|im_end|>", "</think>")))
    recipe, control = config.recipe, config.recipe.length_control
    assert recipe.max_prompt_tokens == len("What is 299?") + 128
    assert recipe.max_prompt_tokens + recipe.max_completion_tokens == 8_192
    assert isinstance(control, Interruption)
    share = recipe.max_completion_tokens / 14_336
    assert control.position == pytest.approx((10_000 * share, 12_000 * share), abs=1)
    assert control.position[1] + control.answer_tokens + 30 < recipe.max_completion_tokens, (
        "room for the phrase"
    )


@pytest.mark.parametrize(("length", "markers"), [(8_192, ()), (1_024, ("</think>",))])
def test_without_the_marker_or_without_room_nothing_is_cut(
    length: int, markers: tuple[str, ...], tmp_path: Path
) -> None:
    config, _ = load_to_start(minimal(tmp_path, length=length, markers=markers))
    assert config.recipe.length_control.kind == "none"


def test_what_the_file_says_is_never_changed(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "model": {"max_length": 512},
        "recipe": {
            "max_completion_tokens": 300,
            "prompts_per_step": 4,
            "length_control": {"kind": "none"},
        },
        "tasks": {"evaluation": {"num_prompts": 7}},
        "redis": {"port": 7001},
        "rpc": {"port": 7002},
        "forecaster": {"http_port": 7003},
        "local": {"prometheus_port": 7004},
    }
    config, found = load_to_start(minimal(tmp_path, length=256, **said))
    assert {one.field for one in found} == {"recipe.max_prompt_tokens"}
    assert config.recipe.max_prompt_tokens == len("What is 299?") + 128
    assert (config.model.max_length, config.recipe.max_completion_tokens) == (512, 300)


def test_a_redis_elsewhere_keeps_its_usual_port(tmp_path: Path) -> None:
    config, _ = load_to_start(minimal(tmp_path, length=256, redis={"host": "redis.example.com"}))
    assert config.redis.port == 6_379


@pytest.mark.parametrize("name", ["demo.yaml", "ablation.yaml"])
def test_the_shipped_runs_say_everything_that_counts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every port is free: which are is a matter of the machine."""
    monkeypatch.setattr(left_out, "can_have", lambda *_: True)
    config = load_run_config(ROOT / "configs" / name)
    assert differences(config, filled_in(config)) == []


def test_a_model_and_data_that_cannot_be_read_are_told_by_the_checks(tmp_path: Path) -> None:
    file = minimal(tmp_path, length=256)
    (tmp_path / "model" / "config.json").write_text("{")
    (tmp_path / "rows.jsonl").write_text("no row")
    config, _ = load_to_start(file)
    assert config.model.max_length == 16_384
    assert config.tasks.evaluation.num_prompts == 1_000


def test_a_taken_page_address_is_given_up_for_a_free_one(tmp_path: Path) -> None:
    file = minimal(tmp_path, length=256)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8_400))
        except OSError:
            pass  # somebody else has it, which is as good
        else:
            taken.listen()
        assert load_to_start(file)[0].forecaster.http_port == 0


def test_a_taken_prometheus_address_is_given_up_for_a_free_one(tmp_path: Path) -> None:
    file = minimal(tmp_path, length=256)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9_090))
        except OSError:
            pass  # somebody else has it, which is as good
        else:
            taken.listen()
        assert load_to_start(file)[0].local.prometheus_port == 0


def test_too_few_rows_are_an_error_all_the_same(tmp_path: Path) -> None:
    config, _ = load_to_start(minimal(tmp_path, length=256, rows=3, recipe={"prompts_per_step": 3}))
    with pytest.raises(UserError, match="there are only 2 training prompts"):
        check_start(Start(config))


def test_lengths_inside_a_text_model_count(tmp_path: Path) -> None:
    file = minimal(tmp_path, length=256)
    (tmp_path / "model" / "config.json").write_text(
        json.dumps({"text_config": {"max_position_embeddings": 300}})
    )
    assert load_to_start(file)[0].model.max_length == 300


@pytest.mark.parametrize(
    "prompt_format", [{"layout": "think"}, {"layout": "think", "system": "Think hard. " * 30}]
)
def test_the_text_around_a_prompt_has_room_even_if_each_byte_is_a_token(
    prompt_format: dict[str, Any], tmp_path: Path
) -> None:
    config, _ = load_to_start(
        minimal(tmp_path, length=2_048, tasks={"prompt_format": prompt_format})
    )
    without_template: Any = SimpleNamespace(chat_template=None)
    for prompt in load(config.tasks).train:
        text, _ = render(without_template, prompt.messages, config.tasks.prompt_format)
        assert len(text.encode()) <= config.recipe.max_prompt_tokens
