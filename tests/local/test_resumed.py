"""A resumed run says which settings are other than those of its last start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.resolved import differences, write_resolved
from rollcast.config.rules_versions import GRADING_RULES, SPLIT_RULES
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.spelling import list_setting_names
from rollcast.local.resume_conditions import FIXED, FIXED_BY_A_CHECKPOINT
from rollcast.local.resumed import EFFECTS_OF_CHANGES, changes_since_start, check_begun


def parsed(**sections: Any) -> RunConfig:
    return parse_run_config({"run": "r", "model": {"path": "m"}, **sections}, source="test")


def write_checkpoint(place: Path, version: str) -> None:
    """As far as a command looks at it."""
    (place / version).mkdir(parents=True)
    state = {"uses": {}, "split_rules": SPLIT_RULES, "grading_rules": GRADING_RULES}
    (place / version / "controller.json").write_text(json.dumps({"controller": state}))


@pytest.fixture
def up_file(tmp_path: Path) -> Path:
    path = tmp_path / "up.json"
    write_resolved(parsed(redis={"password": "hunter2"}), path)
    return path


def test_the_same_settings_say_nothing(up_file: Path) -> None:
    assert (
        changes_since_start(up_file.parent, parsed(redis={"password": "hunter2", "port": 7777}))
        == []
    )
    assert changes_since_start(up_file.parent / "none", parsed()) == []


def test_each_change_is_one_line_with_both_values_and_what_it_means(up_file: Path) -> None:
    changed = parsed(
        recipe={"optimizer": {"learning_rate": 1e-6}, "loss": {"kind": "dapo"}},
        budget={"steps": 7},
        redis={"password": "hunter3"},
    )
    assert changes_since_start(up_file.parent, changed) == [
        "resumed with another setting: recipe.loss.kind 'cispo' -> 'dapo'",
        "resumed with another setting: recipe.optimizer.learning_rate 5e-07 -> 1e-06: the schedule "
        "goes on at its step with the new one",
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
        changes_since_start(up_file.parent, parsed(tasks=tasks, redis={"password": "hunter2"}))
    assert "\n" not in str(refused.value)


def test_a_file_of_another_release_is_not_compared_and_that_is_said(up_file: Path) -> None:
    settings = json.loads(up_file.read_text())
    up_file.write_text(json.dumps(settings | {"gone": 1}))
    (line,) = changes_since_start(up_file.parent, parsed())
    assert line.startswith("settings of the last start are not compared: ")
    assert "gone is not a setting" in line


@pytest.mark.parametrize(
    ("group", "old"),
    [("local", {"restart_limit": 7}), ("trainer", {"drop_after_budgets": 4.0})],
)
def test_settings_that_are_none_any_more_hide_no_other_change(
    group: str, old: dict[str, Any], up_file: Path
) -> None:
    settings = json.loads(up_file.read_text())
    settings[group] = (settings.get(group) or {}) | old
    up_file.write_text(json.dumps(settings))
    (line,) = changes_since_start(up_file.parent, parsed(redis={"password": "hunter2"}))
    ((name, value),) = old.items()
    assert line.startswith(f"resumed with another setting: {group}.{name} {value} -> ")
    with pytest.raises(UserError, match="the curve is measured on other prompts then"):
        changes_since_start(up_file.parent, parsed(tasks={"evaluation": {"seed": 3}}))


def test_a_judge_whose_scores_had_another_scale_is_not_resumed(up_file: Path) -> None:
    settings = json.loads(up_file.read_text())
    settings["tasks"]["verifiers"] = [JUDGE | {"best_score": 5.0}]
    up_file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"best_score = 5\.0 at the last start is not a setting"):
        changes_since_start(up_file.parent, parsed(tasks={"verifiers": [JUDGE]}))


def test_the_names_are_settings() -> None:
    known = list_setting_names(RunConfig)
    for name in (*FIXED, *FIXED_BY_A_CHECKPOINT, *EFFECTS_OF_CHANGES):
        assert any(f"{path}.".startswith(f"{name}.") for path in known), name


def test_groups_of_one_kind_differ_by_setting_and_those_of_two_as_a_whole() -> None:
    one, other = parsed(), parsed(recipe={"loss": {"kind": "cispo", "ratio_max": 4}})
    assert [(d.field, d.old_value, d.new_value) for d in differences(one, other)] == [
        ("recipe.loss.ratio_max", 5.0, 4.0)
    ]
    other = parsed(recipe={"loss": {"kind": "grpo"}})
    assert [d.field for d in differences(one, other)] == ["recipe.loss.kind"]
    assert differences(one, one) == []


ROWS = {"kind": "jsonl", "name": "d", "path": "d.jsonl", "verifier": "math"}
JUDGE = {"kind": "llm-judge", "name": "j", "url": "http://judge/v1", "model": "small"}


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        ({}, {"verifier": "exact"}, "verifier of data set d 'math' -> 'exact'"),
        ({"verifier": None}, {}, "verifier of data set d 'exact' -> 'math'"),
        ({}, {"answer_field": "solution"}, "answer_field of data set d 'answer' -> 'solution'"),
        (
            {"verifier": "./a/reward.py:grade"},
            {"verifier": "./a/reward.py:strict"},
            "verifier of data set d 'reward.py:grade' -> 'reward.py:strict'",
        ),
        (
            {"verifier": "exact"},
            {"verifier": "a.py:f"},
            "verifier of data set d 'exact' -> 'a.py:f'",
        ),
    ],
)
def test_another_grading_of_the_curve_is_refused(
    before: dict[str, Any], now: dict[str, Any], sentence: str, up_file: Path
) -> None:
    write_resolved(parsed(tasks={"dataset": ROWS | before}), up_file)
    with pytest.raises(UserError) as refused:
        changes_since_start(up_file.parent, parsed(tasks={"dataset": ROWS | now}))
    remedy = "set what the run was started with, or choose another name for `run`"
    if sentence.count(":") == 2:  # one function for another
        remedy += (
            "; if it is the same function under a new name, write that name into up.json in the "
            "run's folder"
        )
    assert (
        str(refused.value) == f"--resume: {sentence}: the curve means something else then; {remedy}"
    )
    settings = json.loads(up_file.read_text())
    settings["tasks"]["dataset"] |= ROWS | now
    up_file.write_text(json.dumps(settings))
    assert changes_since_start(up_file.parent, parsed(tasks={"dataset": ROWS | now})) == []


@pytest.mark.parametrize(
    ("before", "now", "same"), [(None, "environment", True), ("verifier", None, False)]
)
def test_who_rewards_may_be_written_out(
    before: str | None, now: str | None, same: bool, up_file: Path
) -> None:
    def config(reward: str | None) -> RunConfig:
        dataset = {"kind": "jsonl", "name": "d", "path": "d.jsonl", "environment": "e"}
        environment = {
            "kind": "openenv",
            "name": "e",
            "url": "http://e",
            "interpreter": "/python",
            "reward": reward,
        }
        return parsed(tasks={"dataset": dataset, "environments": [environment]})

    write_resolved(config(before), up_file)
    if same:
        (line,) = changes_since_start(up_file.parent, config(now))
        assert "tasks.environments" in line
        return
    with pytest.raises(UserError, match=r"e\.reward of data set d 'verifier' -> 'environment'"):
        changes_since_start(up_file.parent, config(now))


def test_a_judge_keeps_what_it_asks_and_not_where(up_file: Path) -> None:
    dataset = ROWS | {"verifier": "j"}
    write_resolved(parsed(tasks={"dataset": dataset, "verifiers": [JUDGE]}), up_file)
    moved = parsed(
        tasks={"dataset": dataset, "verifiers": [JUDGE | {"url": "http://other/v1", "requests": 3}]}
    )
    (line,) = changes_since_start(up_file.parent, moved)
    assert "tasks.verifiers" in line
    larger = JUDGE | {"model": "large"}
    with pytest.raises(
        UserError,
        match=r"j\.model of data set d 'small' -> 'large': the curve means something else",
    ):
        changes_since_start(
            up_file.parent, parsed(tasks={"dataset": dataset, "verifiers": [larger]})
        )


def test_parts_of_a_mixture_keep_their_weights_and_their_grading(up_file: Path) -> None:
    def mixture(weight: float, verifier: str) -> RunConfig:
        parts = [
            {"dataset": ROWS, "weight": weight},
            {"dataset": ROWS | {"name": "e", "verifier": verifier}},
        ]
        return parsed(tasks={"dataset": {"kind": "mixture", "parts": parts}})

    write_resolved(mixture(1.0, "math"), up_file)
    with pytest.raises(
        UserError,
        match=r"weight of data set d 1\.0 -> 2\.0; verifier of data set e 'math' -> 'exact'",
    ):
        changes_since_start(up_file.parent, mixture(2.0, "exact"))


def test_a_function_may_have_moved(up_file: Path) -> None:
    write_resolved(parsed(tasks={"dataset": ROWS | {"verifier": "./a/reward.py:grade"}}), up_file)
    (line,) = changes_since_start(
        up_file.parent, parsed(tasks={"dataset": ROWS | {"verifier": "/b/reward.py:grade"}})
    )
    assert "'./a/reward.py:grade' -> '/b/reward.py:grade'" in line


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 3}, "seed 0 -> 3"),
        ({"recipe": {"unique_prompts": 100}}, "recipe.unique_prompts null -> 100"),
        ({"model": {"path": "m", "lora": {"rank": 8}}}, r"model.lora null -> \{rank 8, alpha .*\}"),
    ],
)
def test_what_a_checkpoint_was_made_with_is_kept_once_there_is_one(
    change: dict[str, Any], sentence: str, up_file: Path
) -> None:
    write_checkpoint(up_file.parent / "checkpoints", "1.4")
    now = parsed(redis={"password": "hunter2"}, **change)
    with pytest.raises(
        UserError, match=f"^--resume: {sentence}: the newest checkpoint is of a run without that"
    ):
        changes_since_start(up_file.parent, now)
    shutil.rmtree(up_file.parent / "checkpoints")
    assert len(changes_since_start(up_file.parent, now)) == 1


def test_a_model_of_another_shape_is_refused_before_a_trainer_reads_it(
    tmp_path: Path, up_file: Path
) -> None:
    write_checkpoint(up_file.parent / "checkpoints", "1.4")
    for name, layers, length in (("old", 2, 512), ("longer", 2, 1024), ("deeper", 3, 512)):
        (tmp_path / name).mkdir()
        sizes = {"hidden_size": 64, "num_hidden_layers": layers, "max_position_embeddings": length}
        (tmp_path / name / "config.json").write_text(
            json.dumps({"text_config": sizes} if name == "deeper" else sizes)
        )
    write_resolved(parsed(model={"path": str(tmp_path / "old")}), up_file)
    with pytest.raises(
        UserError,
        match=r"model\.path .*old' -> .*deeper': num_hidden_layers 2 -> 3: the newest check",
    ):
        changes_since_start(up_file.parent, parsed(model={"path": str(tmp_path / "deeper")}))
    for name in ("longer", "gone"):
        (line,) = changes_since_start(up_file.parent, parsed(model={"path": str(tmp_path / name)}))
        assert line.endswith("the weights go on from the checkpoint")


def test_a_run_that_was_never_started_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=(
            r"--resume: run = sums: no run of this name was started in .*; this folder has no "
            r"run\. L"
        ),
    ):
        check_begun(tmp_path / "sums", None)
    for name in ("sums-1", "sums-2", "proofs"):
        (tmp_path / name).mkdir()
        write_resolved(parsed(), tmp_path / name / "up.json")
        check_begun(tmp_path / name, None)
    with pytest.raises(
        UserError, match=r"run = sum-1: .*; did you mean sums-1 or sums-2\? Leave out --resume to"
    ):
        check_begun(tmp_path / "sum-1", None)
    with pytest.raises(UserError, match=r"its runs are proofs, sums-1, sums-2\. L"):
        check_begun(tmp_path / "quite-another", None)
    check_begun(tmp_path / "elsewhere", "s3://bucket/runs")
    write_checkpoint(tmp_path / "kept" / "moved", "1.4")
    check_begun(tmp_path / "moved", str(tmp_path / "kept"))
