"""Names from other systems: each leads to a setting that exists, by an example that is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.other_names import Counterpart, counterpart, counterparts
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.spelling import list_setting_names
from tests.config.wrong_run_files import RIGHT, changed

ROOT = Path(__file__).parents[2]
BARE: dict[str, Any] = {"run": "r", "model": {"path": "a/b", "max_length": 32_768}}
SUPPORTED = [one for one in counterparts() if one.setting]


def refused(settings: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        parse_run_config(settings, source="test")
    return str(error.value)


def test_no_name_has_two_answers() -> None:
    assert [
        name
        for name, count in Counter(name for one in counterparts() for name in one.names).items()
        if count > 1
    ] == []


@pytest.mark.parametrize("one", SUPPORTED, ids=lambda one: one.setting)
def test_its_example_is_right_and_gives_that_setting(one: Counterpart) -> None:
    assert one.setting in list_setting_names(RunConfig)
    settings = changed(
        BARE | {"recipe": {"length_control": {"kind": "none"}}}, yaml.safe_load(one.example)
    )
    parse_run_config(settings, source="test")
    place: Any = yaml.safe_load(one.example)
    for name in one.setting.split("."):
        place = place[name]


@pytest.mark.parametrize("one", counterparts(), ids=lambda one: one.names[0])
def test_a_run_file_with_it_is_answered_so(one: Counterpart) -> None:
    for dotted in one.names:
        settings: Any = [None]
        for name in reversed(dotted.split(".")):
            settings = {name: settings}
        if dotted.split(".")[0] in RunConfig.model_fields:
            settings = changed(BARE, settings)
        said = refused(BARE | settings)
        assert said == f"test: {dotted} {one.sentence()}", dotted


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [
        ("optim.lr", 1e-6, "recipe: {optimizer: {learning_rate: 1.0e-06}}"),
        ("optim.lr", "1e-6", "recipe: {optimizer: {learning_rate: 1.0e-06}}"),
        ("rollout.n", 5, "recipe: {rollouts_per_prompt: 5}"),
        ("clip_ratio_high", 0.3, "recipe: {loss: {kind: dapo, clip_high: 0.3}}"),
        ("kl_coef", 0.02, "recipe: {kl: {coefficient: 0.02}}"),
        ("model_name_or_path", "org/Small-1B", "model: {path: org/Small-1B}"),
        (
            "prompt_key",
            "question",
            "tasks: {dataset: {kind: jsonl, name: rows, path: rows.jsonl, prompt_field: question}}",
        ),
        ("target_modules", ["q_proj"], "model: {lora: {targets: [q_proj]}}"),
        ("save_steps", 25, "trainer: {checkpoint_every_steps: 25}"),
        ("save_steps", -1, "trainer: {checkpoint_every_steps: 50}"),
        ("clip_grad", True, "recipe: {optimizer: {max_grad_norm: 1.0}}"),
        ("warmup_ratio", 0.03, "recipe: {optimizer: {warmup_steps: 100}}"),
        ("train_batch_size", 1024, "recipe: {prompts_per_step: 48}"),
        ("model_name", "x" * 200, "model: {path: Qwen/Qwen3-0.6B}"),
    ],
)
def test_the_remedy_has_the_users_value_if_it_means_the_same(
    name: str, value: object, example: str
) -> None:
    settings: Any = value
    for part in reversed(name.split(".")):
        settings = {part: settings}
    assert refused(BARE | settings).endswith(f": `{example}`")


@pytest.mark.parametrize("one", SUPPORTED, ids=lambda one: one.setting)
def test_names_of_the_same_value_are_names_of_the_entry(one: Counterpart) -> None:
    assert one.same_value == ("all",) or set(one.same_value) <= set(one.names)


@pytest.mark.parametrize(
    "one", [one for one in counterparts() if not one.setting], ids=lambda one: one.names[0]
)
def test_what_is_not_supported_names_a_page_that_is_there(one: Counterpart) -> None:
    assert (ROOT / one.page).is_file()
    assert one.page in one.sentence()


def test_a_setting_of_ours_is_never_answered_as_theirs() -> None:
    """Whatever the table holds: a setting that another kind has, or a slip of the pen,
    stays one.
    """
    assert "did you mean recipe.optimizer.betas?" in refused(
        changed(BARE, {"recipe": {"optimizer": {"beta": 1}}})
    )
    other_kind = changed(BARE, {"recipe": {"length_control": {"kind": "none", "max_tokens": 4}}})
    assert "another kind has it" in refused(other_kind)


def test_names_count_in_any_case_and_with_hyphens() -> None:
    assert counterpart("LR") is counterpart("lr") is not None
    assert counterpart("train-batch-size") is counterpart("train_batch_size") is not None


def test_a_pasted_group_is_answered_setting_by_setting_however_deep() -> None:
    verl = {
        "actor_rollout_ref": {
            "rollout": {"n": 5, "response_length": 64},
            "actor": {"optim": {"lr": 1e-6}, "x": 1},
        }
    }
    fields = [line.split()[1] for line in refused(BARE | verl).splitlines()]
    assert fields == [
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.rollout.response_length",
        "actor_rollout_ref.actor.optim.lr",
    ]
    deep: Any = {"n": 1}
    for _ in range(200):
        deep = {"group": deep}
    assert refused(BARE | deep).startswith("test: group is not a setting; ")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("orchestrator.eval.rollouts_per_example", "tasks.evaluation.rollouts_per_prompt"),
        ("orchestrator.rollouts_per_example", "recipe.rollouts_per_prompt"),
        ("policy.max_grad_norm", "recipe.optimizer.max_grad_norm"),
        ("actor_rollout_ref.model.path", "model.path"),
        ("trainer.loss.type", "recipe.loss"),
        ("policy.optimizer.name", ""),
        ("recipe.optimizer.type", ""),
        ("grpo.val_at_start", "tasks.evaluation.every_steps"),
        ("data.max_input_seq_length", "recipe.max_prompt_tokens"),
    ],
)
def test_a_name_is_answered_by_the_group_that_it_is_in(name: str, setting: str) -> None:
    settings: Any = [None]
    for part in reversed(name.split(".")):
        settings = {part: settings}
    found = counterpart(name)
    assert found is not None
    assert found.setting == setting
    assert f"test: {name} {found.sentence()}" in refused(changed(BARE, settings)).splitlines()


def test_a_secret_is_shown_in_no_example() -> None:
    source = {"forecaster": {"source": {"url": "http://p:9090", "token": "hunter2"}}}
    assert "hunter2" not in refused(changed(RIGHT, source))
