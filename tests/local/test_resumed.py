"""A resumed run says which settings are other than those of its last start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.resolved import differences, write_resolved
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.spelling import settings_of
from rollcast.local.resumed import FIXED, MEANING, changed_settings


def parsed(**sections: Any) -> RunConfig:
    return parse_run_config({"run": "r", "model": {"path": "m"}, **sections}, source="test")


@pytest.fixture
def up_file(tmp_path: Path) -> Path:
    path = tmp_path / "up.json"
    write_resolved(parsed(redis={"password": "hunter2"}), path)
    return path


def test_the_same_settings_say_nothing(up_file: Path) -> None:
    assert changed_settings(up_file, parsed(redis={"password": "hunter2", "port": 7777})) == []
    assert changed_settings(up_file.with_name("none.json"), parsed()) == []


def test_each_change_is_one_line_with_both_values_and_what_it_means(up_file: Path) -> None:
    changed = parsed(
        recipe={"optimizer": {"learning_rate": 1e-6}, "loss": {"kind": "dapo"}},
        budget={"steps": 7},
        redis={"password": "hunter3"},
    )
    assert changed_settings(up_file, changed) == [
        "resumed with another setting: recipe.loss.kind 'cispo' -> 'dapo'",
        "resumed with another setting: recipe.optimizer.learning_rate 5e-07 -> 1e-06: the schedule goes on at its step "
        "with the new one",
        "resumed with another setting: budget.steps null -> 7",
        "resumed with another setting: redis.password (not shown)",
    ]


@pytest.mark.parametrize(
    "tasks",
    [
        {"evaluation": {"num_prompts": 10}},
        {"evaluation": {"seed": 3}},
        {"dataset": {"kind": "countdown"}},
        {"dataset": {"kind": "arithmetic", "name": "sums"}},
    ],
)
def test_what_would_make_another_curve_is_refused(tasks: dict[str, Any], up_file: Path) -> None:
    with pytest.raises(UserError, match="the curve is measured on other prompts then") as refused:
        changed_settings(up_file, parsed(tasks=tasks, redis={"password": "hunter2"}))
    assert "\n" not in str(refused.value)


def test_a_file_of_another_release_is_not_compared_and_that_is_said(up_file: Path) -> None:
    settings = json.loads(up_file.read_text())
    up_file.write_text(json.dumps(settings | {"gone": 1}))
    (line,) = changed_settings(up_file, parsed())
    assert line.startswith("settings of the last start are not compared: ")
    assert "gone is not a setting" in line


def test_the_names_are_settings() -> None:
    known = settings_of(RunConfig)
    for name in (*FIXED, *MEANING):
        assert any(f"{path}.".startswith(f"{name}.") for path in known), name


def test_groups_of_one_kind_differ_by_setting_and_those_of_two_as_a_whole() -> None:
    one, other = parsed(), parsed(recipe={"loss": {"kind": "cispo", "ratio_max": 4}})
    assert [(d.field, d.before, d.after) for d in differences(one, other)] == [("recipe.loss.ratio_max", 5.0, 4.0)]
    other = parsed(recipe={"loss": {"kind": "grpo"}})
    assert [d.field for d in differences(one, other)] == ["recipe.loss.kind"]
    assert differences(one, one) == []
