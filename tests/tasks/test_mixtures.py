"""Mixtures and downstream sets: no text on two sides, everything accounted for."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.datasets import CountdownDataset, JsonlDataset, Mixture, Part
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.config.tasks import Downstream, Evaluation, Tasks
from rollcast.tasks.contamination import normal_form
from rollcast.tasks.prompt import Prompt, normalise
from rollcast.tasks.prompts import load

texts = st.lists(
    st.text(alphabet="aAb c", min_size=1, max_size=3).filter(str.strip), min_size=1, max_size=25
)


def write(path: Path, prompts: list[str]) -> JsonlDataset:
    path.write_text("".join(json.dumps({"prompt": text, "answer": "x"}) + "\n" for text in prompts))
    return JsonlDataset(name=path.stem, path=path, template=f"{path.stem} asks: {{prompt}}")


def bare(text: str) -> str:
    return normalise(text.partition(" asks: ")[2])


@settings(max_examples=25)
@given(math=texts, code=texts, aime=texts, seed=st.integers(0, 3))
def test_no_text_stands_on_two_sides_whatever_template_it_wears(
    math: list[str],
    code: list[str],
    aime: list[str],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("sets")
    asked = {normalise(text) for text in aime}
    forms = {normal_form(text) for text in aime}
    of_math = {normalise(text) for text in math if normal_form(text) not in forms}
    of_code = {normalise(text) for text in code if normal_form(text) not in forms} - of_math
    parts = tuple(
        Part(dataset=write(folder / f"{name}.jsonl", rows))
        for name, rows in (("math", math), ("code", code))
    )
    tasks = Tasks(
        dataset=Mixture(parts=parts),
        evaluation=Evaluation(num_prompts=2, seed=seed),
        downstream=(Downstream(dataset=write(folder / "aime.jsonl", aime)),),
    )
    if min(len(of_math), len(of_code)) <= 2:
        with pytest.raises(
            UserError, match=r"num_prompts = 2: data set '(math|code)' has only|holds no rows"
        ):
            load(tasks)
        return
    if (
        len({normal_form(text) for text in of_math | of_code}) <= 4
    ):  # what is held out may be all that is asked
        with contextlib.suppress(UserError):
            load(tasks)
        return
    split = load(tasks)
    evaluated = {normal_form(bare(prompt.text)) for prompt in split.held_out}
    for name, wanted in (("math", of_math), ("code", of_code)):
        train = {bare(prompt.text) for prompt in split.train if prompt.dataset == name}
        held_out = {bare(prompt.text) for prompt in split.held_out if prompt.dataset == name}
        assert {normal_form(text) for text in wanted - train - held_out} <= evaluated
        assert evaluated.isdisjoint(map(normal_form, train))
        assert len(held_out) == 2
    assert {bare(prompt.text) for prompt in split.downstream["aime"]} == asked
    kept = len(split.train) + len(split.held_out)
    left_out = sum(
        split.skipped.get(reason, 0) for reason in ("duplicate", "downstream", "contaminated")
    )
    assert kept + left_out == len(math) + len(code)


def test_a_puzzle_asked_downstream_leaves_training_in_any_order_of_its_numbers() -> None:
    small: Any = {"numbers": (3, 3), "max_number": 6, "max_target": 12}
    tasks = Tasks(
        dataset=CountdownDataset(size=80, seed=1, **small),
        evaluation=Evaluation(num_prompts=20),
        downstream=(Downstream(dataset=CountdownDataset(name="asked", size=80, seed=2, **small)),),
    )

    def puzzles(prompts: list[Prompt]) -> set[tuple[tuple[int, ...], int]]:
        references = [json.loads(prompt.reference) for prompt in prompts]
        return {(tuple(sorted(item["numbers"])), item["target"]) for item in references}

    split = load(tasks)
    assert len(puzzles(split.downstream["asked"])) == 80
    assert puzzles(split.downstream["asked"]).isdisjoint(puzzles([*split.train, *split.held_out]))


def test_a_part_may_hold_out_its_own_number_and_a_downstream_set_be_cut(tmp_path: Path) -> None:
    math = Part(dataset=write(tmp_path / "math.jsonl", [f"m{i}" for i in range(40)]), held_out=9)
    code = Part(dataset=write(tmp_path / "code.jsonl", [f"c{i}" for i in range(20)]), weight=2)
    aime = Downstream(
        dataset=write(tmp_path / "aime.jsonl", [f"a{i}" for i in range(30)]), num_prompts=6
    )
    first, again, other = (
        load(
            Tasks(
                dataset=Mixture(parts=(math, code)),
                evaluation=Evaluation(num_prompts=4, seed=seed),
                downstream=(aime,),
            )
        )
        for seed in (1, 1, 2)
    )
    assert [prompt.dataset for prompt in first.held_out] == ["math"] * 9 + ["code"] * 4
    assert len(first.downstream["aime"]) == 6
    assert first == again
    assert first.downstream != other.downstream


def test_mixing_a_part_in_leaves_the_held_out_prompts_of_the_other_where_they_were(
    tmp_path: Path,
) -> None:
    math = write(tmp_path / "math.jsonl", [f"m{i}" for i in range(40)])
    code = write(tmp_path / "code.jsonl", [f"c{i}" for i in range(40)])
    alone = load(Tasks(dataset=math, evaluation=Evaluation(num_prompts=7)))
    mixture = Mixture(parts=(Part(dataset=math), Part(dataset=code)))
    mixed = load(Tasks(dataset=mixture, evaluation=Evaluation(num_prompts=7)))
    assert [prompt for prompt in mixed.held_out if prompt.dataset == "math"] == alone.held_out


def part(name: str, **more: Any) -> dict[str, Any]:
    return {"dataset": {"kind": "countdown", "name": name, "size": 50}, **more}


@pytest.mark.parametrize(
    ("tasks", "complaint"),
    [
        (
            {"dataset": {"kind": "mixture", "parts": [part("a")]}},
            "tasks.dataset.parts .*: needs 2 entries at least",
        ),
        (
            {"dataset": {"kind": "mixture", "parts": [part("a"), part("a")]}},
            "name = .a. is wrong: is given more",
        ),
        (
            {"dataset": {"kind": "mixture", "name": "a", "parts": [part("a"), part("b")]}},
            "name = .a. is wrong: is given more",
        ),
        (
            {"downstream": [part("arithmetic")]},
            "tasks.downstream.0.dataset.name = 'arithmetic' is wrong",
        ),
        ({"dataset": {"kind": "mixture", "parts": [part("a", weight=0), part("b")]}}, "weight = 0"),
        (
            {"downstream": [part("a", rollouts_per_prompt=512)]},
            "downstream.0.rollouts_per_prompt = 512 is wrong",
        ),
        (
            {"evaluation": {"rollouts_per_prompt": 300}},
            "tasks.evaluation.rollouts_per_prompt = 300 is wrong",
        ),
    ],
)
def test_contradictions_are_found_in_the_run_file(tasks: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_run_config({"run": "r", "model": {"path": "m"}, "tasks": tasks}, source="test")
