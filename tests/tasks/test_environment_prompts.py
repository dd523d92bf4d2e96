"""Rows that are answered in an environment: their prompts, who rewards them, and the tasks that are
made of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.datasets import JsonlDataset
from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.episodes import Episodes
from rollcast.config.errors import UserError
from rollcast.config.recipe import NoLengthControl, Recipe
from rollcast.config.tasks import Downstream, Evaluation, PromptFormat, Tasks
from rollcast.rollouts.codec import decode_task, encode_task
from rollcast.rollouts.records import Purpose
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import TokenizedPrompt
from rollcast.tasks.trial import grader, try_verifiers
from rollcast.trainer.control.prompt_book import TaskMaker
from tests.tasks.data_sets import write_rows

WORLD = ClassEnvironment(name="world", code="./world.py:World")
SUMS = ToolSet(name="sums", tools=("calculator",))


def tasks_of(
    folder: Path, rows: list[object], *environments: EnvironmentSettings, **dataset: Any
) -> Tasks:
    path = write_rows(folder / "rows.jsonl", rows)
    return Tasks(
        dataset=JsonlDataset(name="mine", path=path, **dataset),
        evaluation=Evaluation(num_prompts=1),
        environments=environments,
    )


def all_prompts(tasks: Tasks) -> list[Prompt]:
    split = load(tasks)
    return [*split.train, *split.held_out]


def test_the_environment_gets_the_whole_row_and_rewards_without_a_verifier(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": f"play {n}", "seed": n, "when": None} for n in range(3)]
    tasks = tasks_of(tmp_path, rows, WORLD, environment="world")
    found = {prompt.text: prompt for prompt in all_prompts(tasks)}
    prompt = found["play 2"]
    assert prompt.environment == "world"
    assert json.loads(prompt.reference) == {"prompt": "play 2", "seed": 2, "when": None}
    assert (prompt.verifier, prompt.answer) == ("", "")
    assert verifier_names(tasks) == set()
    assert try_verifiers(tasks, found.values()) == []


def test_a_built_in_verifier_rewards_episodes_with_the_rows_answer(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": f"{n} + 1", "answer": str(n + 1)} for n in range(3)]
    tasks = tasks_of(tmp_path, rows, SUMS, environment="sums")
    prompt = next(one for one in all_prompts(tasks) if one.text == "2 + 1")
    assert json.loads(prompt.reference) == {"prompt": "2 + 1", "answer": "3"}
    assert (prompt.verifier, json.loads(prompt.answer)) == ("exact", "3")
    with grader(tasks) as grade_one:
        assert [grade_one(prompt, answer).reward for answer in ("3", "4")] == [1.0, 0.0]
    assert verifier_names(tasks) == {"exact"}


def test_a_verifier_of_ones_own_gets_the_whole_row(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": f"play {n}", "goal": n} for n in range(3)]
    rewarding = WORLD.model_copy(update={"reward": "verifier"})
    tasks = tasks_of(tmp_path, rows, rewarding, environment="world", verifier="./reward.py:grade")
    for prompt in all_prompts(tasks):
        assert (prompt.verifier, prompt.answer) == ("./reward.py:grade", "")
        assert "goal" in json.loads(prompt.reference)


def test_a_row_names_an_environment_of_its_own(tmp_path: Path) -> None:
    rows: list[object] = [
        {"prompt": "a", "answer": "1"},
        {"prompt": "b", "answer": "2", "environment": "sums"},
        {"prompt": "c", "answer": "3", "environment": "world"},
    ]
    found = {prompt.text: prompt for prompt in all_prompts(tasks_of(tmp_path, rows, WORLD, SUMS))}
    assert [found[text].environment for text in "abc"] == ["", "sums", "world"]
    assert [found[text].verifier for text in "abc"] == ["exact", "exact", ""]
    assert json.loads(found["a"].reference) == "1"
    without = tasks_of(tmp_path, rows)
    assert {prompt.environment for prompt in all_prompts(without)} == {""}, "a field as any other"


@pytest.mark.parametrize("name", ["word", 7, ["world"]])
def test_a_row_with_an_unknown_environment_is_named(tmp_path: Path, name: object) -> None:
    rows: list[object] = [{"prompt": "a"}, {"prompt": "b", "environment": name}]
    with pytest.raises(
        UserError,
        match=r"line 2: field 'environment' is .* not one of tasks.environments \(world\)",
    ):
        load(tasks_of(tmp_path, rows, WORLD, environment="world"))


def test_a_row_whose_environment_and_verifier_both_may_reward_is_refused(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": "a", "answer": "1", "environment": "world"}]
    with pytest.raises(
        UserError,
        match="line 1: reward of environment 'world': both the environment and the verifier",
    ):
        load(tasks_of(tmp_path, rows, WORLD, verifier="math"))


def test_rows_of_one_text_are_different_prompts_if_they_differ_in_anything(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": "play", "seed": n % 8} for n in range(10)]
    split = load(tasks_of(tmp_path, rows, WORLD, environment="world"))
    prompts = [*split.train, *split.held_out]
    assert len({prompt.id for prompt in prompts}) == len(prompts) == 8
    assert split.skipped == {"duplicate": 2}
    again = load(tasks_of(tmp_path, rows[::-1], WORLD, environment="world"))
    assert {prompt.id for prompt in again.held_out} == {prompt.id for prompt in split.held_out}


def test_a_downstream_set_in_an_environment_leaves_training(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": "play", "seed": n} for n in range(6)]
    other = write_rows(tmp_path / "other.jsonl", rows[:2])
    tasks = tasks_of(tmp_path, rows, WORLD, environment="world")
    held = Downstream(dataset=JsonlDataset(name="other", path=other, environment="world"))
    split = load(tasks.model_copy(update={"downstream": (held,)}))
    assert [prompt.environment for prompt in split.downstream["other"]] == ["world"] * 2
    assert split.skipped == {"downstream": 2}


@pytest.mark.parametrize("purpose", Purpose)
def test_a_task_carries_the_chat_and_the_budgets(tmp_path: Path, purpose: Purpose) -> None:
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "go"},
    ]
    rows: list[object] = [{"prompt": chat, "answer": "4"}, {"prompt": "go", "answer": "5"}]
    prompts = {
        prompt.text: prompt
        for prompt in all_prompts(tasks_of(tmp_path, rows, SUMS, environment="sums"))
    }
    recipe = Recipe(
        length_control=NoLengthControl(), episodes=Episodes(max_turns=5, max_seconds=30.0)
    )
    maker = TaskMaker(
        recipe, lambda text: [1], PromptFormat(system="be brief"), incarnation=1, seed=0
    )
    made = maker.make(3, TokenizedPrompt(prompts["hi\n\nyes\n\ngo"], (1, 2)), 4, purpose, 7)
    task = decode_task(encode_task(made))
    assert task.episode is not None
    assert task.episode.environment == "sums"
    assert json.loads(task.episode.messages) == [{"role": "system", "content": "be brief"}, *chat]
    assert (task.episode.max_turns, task.episode.max_seconds) == (5, 30.0)
    assert json.loads(task.verifier_reference) == "4"
    assert json.loads(task.reference)["answer"] == "4"


def test_an_answer_that_no_wire_takes_leaves_its_row_out(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": f"p{n}", "answer": "1"} for n in range(3)]
    rows.append({"prompt": "long", "answer": "x" * (17 << 20)})
    tasks = tasks_of(tmp_path, rows, SUMS, environment="sums")
    split = load(tasks)
    assert split.skipped == {"oversized": 1}
    assert all(prompt.text != "long" for prompt in [*split.train, *split.held_out])


def test_a_task_without_an_environment_has_none(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]
    prompt = all_prompts(tasks_of(tmp_path, rows))[0]
    maker = TaskMaker(
        Recipe(length_control=NoLengthControl()), lambda text: [1], incarnation=1, seed=0
    )
    task = maker.make(3, TokenizedPrompt(prompt, (1, 2)), 4, Purpose.TRAIN)
    assert task.episode is None
    assert task.verifier_reference == task.reference == prompt.reference
