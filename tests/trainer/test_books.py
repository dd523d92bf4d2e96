"""The books of a run, read from its data sets: what is left out of any of them is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.service import _read_books
from testkit.trainer.quick_control import CharTokenizer


def rows(path: Path, prompts: list[str]) -> dict[str, Any]:
    path.write_text(
        "".join(json.dumps({"prompt": prompt, "answer": "1"}) + "\n" for prompt in prompts)
    )
    return {"kind": "jsonl", "name": path.stem, "path": str(path), "verifier": "exact"}


def test_prompts_that_are_too_long_are_counted_in_every_set(tmp_path: Path) -> None:
    """A token is a character here: of 60 rows to train on or hold out half are too long, of 5
    downstream two.
    """
    own = [f"q{number}" + "+" * 10 * (number % 2) for number in range(60)]
    downstream = ["a", "b", "c", "far too long", "too long as well"]
    config = parse_run_config(
        {
            "run": "r",
            "model": {"path": "none", "max_length": 64},
            "tasks": {
                "dataset": rows(tmp_path / "own.jsonl", own),
                "evaluation": {"num_prompts": 20},
                "downstream": [{"dataset": rows(tmp_path / "other.jsonl", downstream)}],
            },
            "recipe": {
                "prompts_per_step": 4,
                "max_prompt_tokens": 8,
                "max_completion_tokens": 8,
                "length_control": {"kind": "none"},
            },
        },
        source="test",
    )
    books = _read_books(
        config.tasks, config.recipe, CharTokenizer(), exporter := Exporter("r"), Progress()
    )
    assert 30 - 20 <= len(books.train) < 40, "some that are too long are among those held out"
    assert len(books.train) + len(books.held_out) == 30
    assert 'rollcast_prompts_skipped{reason="too_long",run="r"} 32.0' in exporter.render().decode()


def test_a_resumed_run_keeps_the_prompts_that_it_began_with_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [f"q{number}" for number in range(20)] + ["What  is IT"]
    config = parse_run_config(
        {
            "run": "r",
            "model": {"path": "none", "max_length": 64},
            "tasks": {
                "dataset": rows(tmp_path / "own.jsonl", own),
                "evaluation": {"num_prompts": 4},
                "downstream": [{"dataset": rows(tmp_path / "other.jsonl", ["what is it"])}],
            },
            "recipe": {
                "prompts_per_step": 4,
                "max_prompt_tokens": 20,
                "max_completion_tokens": 8,
                "length_control": {"kind": "none"},
            },
        },
        source="test",
    )
    for split_rules, num_trained in ((1, 17), (2, 16)):
        exporter = Exporter("r")
        books = _read_books(
            config.tasks,
            config.recipe,
            CharTokenizer(),
            exporter,
            Progress(split_rules=split_rules),
        )
        assert len(books.train) == num_trained
        assert len(books.held_out) == 4
        is_left_out = (
            'rollcast_prompts_skipped{reason="contaminated",run="r"} 1.0'
            in exporter.render().decode()
        )
        assert is_left_out is (split_rules == 2)
        said = (
            "1 training prompt asks what a held-out or downstream prompt asks, in another spelling"
        )
        assert (said in capsys.readouterr().out) is (split_rules == 1)


def test_a_resumed_run_with_other_prompts_is_refused_also_where_only_held_out_ones_differ(
    tmp_path: Path,
) -> None:
    own = [f"q{number}" for number in range(20)]
    settings: dict[str, Any] = {
        "run": "r",
        "model": {"path": "none", "max_length": 64},
        "tasks": {"dataset": rows(tmp_path / "own.jsonl", own), "evaluation": {"num_prompts": 4}},
        "recipe": {
            "prompts_per_step": 4,
            "max_prompt_tokens": 20,
            "max_completion_tokens": 8,
            "length_control": {"kind": "none"},
        },
    }
    config = parse_run_config(settings, source="test")
    progress = Progress.from_json(Progress().as_json())
    held_out = next(
        iter(
            _read_books(
                config.tasks, config.recipe, CharTokenizer(), Exporter("r"), progress
            ).held_out
        )
    )
    again = Progress.from_json(progress.as_json())
    books = _read_books(config.tasks, config.recipe, CharTokenizer(), Exporter("r"), again)
    changed = books.held_out[held_out].prompt.text
    rows(tmp_path / "own.jsonl", [f"{text}?" if text == changed else text for text in own])
    with pytest.raises(
        UserError, match=r"tasks\.dataset: its training and held-out prompts are not those that"
    ):
        _read_books(config.tasks, config.recipe, CharTokenizer(), Exporter("r"), again)
