"""Parts of a recipe that are the user's own functions: they compute what they return; each mistake
is one sentence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from rollcast.config.custom_function_digests import with_digests
from rollcast.config.errors import UserError
from rollcast.config.function_loading import file_digest, load_function
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import differences, write_resolved
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.local.checks.custom_functions import try_custom_functions
from rollcast.local.left_out import filled_in
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.custom_functions import (
    CustomFunctionCaller,
    PromptRecord,
    custom_weight,
    load_custom_functions,
)
from rollcast.recipe.losses.loss import LossInputs, objective
from rollcast.recipe.losses.make import make_loss
from rollcast.recipe.trial import find_failure
from rollcast.rollouts.records import GradingStatus, RolloutGroup
from rollcast.trainer.control.assembly import assemble
from tests.recipe.loss_inputs import random_inputs
from tests.trainer.tiny_models import make_groups

RIGHT = """
import numpy as np


def loss(inputs):
    ratio = (inputs.logprobs - inputs.generator_logprobs).detach().exp().clamp(max=5.0)
    return ratio * inputs.advantages * inputs.logprobs


def advantage(batch):
    means = {index: batch.rewards[batch.group == index].mean() for index in set(batch.group.tolist())}
    return batch.rewards - np.array([means[index] for index in batch.group.tolist()])


def keeps(group):
    return bool(group.rewards.min() < group.rewards.max())


def exact(inputs):
    assert len(inputs.logprobs) > 0
    return inputs.logprobs


def in_place(inputs):
    inputs.weights.mul_(2.0)
    inputs.logprobs.clamp_(min=-1.0)
    return inputs.logprobs * inputs.advantages.neg_()


def weight(prompt):
    return 0.0 if prompt.prompt_id == "never" else 1.0


def nothing(prompt):
    return 0


asked = []


def hardly(prompt):
    asked.append(prompt)
    assert len(asked) < 10_000, "asked for ever"
    return 1e-9


def penalty(completion):
    over = max(0.0, completion.num_tokens - 10) / completion.max_tokens
    return -0.5 * over * completion.reward
"""  # noqa: E501
WRONG = """
import os
import time
import numpy as np


def short(inputs):
    return inputs.logprobs[:-1]


def no_gradient(inputs):
    return inputs.advantages * inputs.generator_logprobs


def zero(inputs):
    return 0 * inputs.logprobs


def not_a_number(inputs):
    return inputs.logprobs * float("nan")


def divides(record):
    return 1 / 0


def text(record):
    return "much"


def two(record):
    return 2.0


def none(record):
    return None


def hangs(record):
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass


def dies(record):
    os.write(1, b"text of a library\\n7\\n")
    os._exit(7)


def leaves(record):
    os._exit(0)


def exits(record):
    raise SystemExit(0)


def whole(batch):
    return np.zeros(2)


def infinite(batch):
    return np.full(len(batch.rewards), np.inf)


def by_graded(prompt):
    return prompt.reward / prompt.graded
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(RIGHT)
    return f"{tmp_path}/mine.py"


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    (tmp_path / "wrong.py").write_text(WRONG)
    return f"{tmp_path}/wrong.py"


def recipe_with(setting: str, function: str, **more: object) -> Recipe:
    return Recipe.model_validate({setting: {"kind": "python", "function": function}, **more})


MISTAKES = {
    ("loss", "short"): "returned 'a tensor [5]', needs a tensor [6], one term for each token",
    (
        "loss",
        "no_gradient",
    ): "returned 'terms without gradient', needs terms computed from inputs.logprobs",
    (
        "loss",
        "zero",
    ): "returned 'terms whose gradient is 0', needs terms computed from inputs.logprobs",
    ("loss", "not_a_number"): "returned 'terms that are not finite', needs finite ones",
    ("loss", "divides"): "ZeroDivisionError: division by zero (FILE, line 24)",
    ("loss", "text"): "returned 'much', needs a tensor [6], one term for each token",
    (
        "loss",
        "hangs",
    ): (
        "had not returned after 0.3 s on a small made-up record; a run calls it often, so make it "
        "fast"
    ),
    ("loss", "absent"): "FILE has no function 'absent' (it has",
    ("advantage", "whole"): "needs shape [5], one number for each rollout, and not [2]",
    ("advantage", "infinite"): "needs finite numbers",
    ("advantage", "text"): "returned 'much', needs one number for each rollout",
    ("filter", "two"): "returned 2.0, needs True (train on the group) or False",
    ("filter", "exits"): "exits: SystemExit: 0 (FILE, line",
    ("filter", "none"): "returned None, needs True (train on the group) or False",
    ("curriculum", "two"): "returned 2.0, needs a number from 0 to 1",
    ("curriculum", "by_graded"): "ZeroDivisionError: float division by zero (FILE, line",
    ("length_control", "none"): "returned None, needs a number from -10 to 10",
    ("length_control", "hangs"): "had not returned after 0.3 s",
}


@pytest.mark.parametrize(("setting", "function"), MISTAKES, ids="-".join)
def test_a_mistake_is_one_sentence_before_the_start(
    wrong: str, setting: str, function: str
) -> None:
    recipe = recipe_with(setting, f"{wrong}:{function}")
    sentence = find_failure(
        f"recipe.{setting}", recipe, timeout_seconds=0.3 if function == "hangs" else 20.0
    )
    assert sentence is not None
    assert "\n" not in sentence
    assert sentence.startswith(f"recipe.{setting} {wrong}:{function}: ")
    assert MISTAKES[setting, function].replace("FILE", wrong) in sentence


@pytest.mark.parametrize(
    ("setting", "function"),
    [
        ("loss", "loss"),
        ("advantage", "advantage"),
        ("filter", "keeps"),
        ("curriculum", "weight"),
        ("length_control", "penalty"),
    ],
)
def test_a_function_without_mistake_passes(mine: str, setting: str, function: str) -> None:
    assert find_failure(f"recipe.{setting}", recipe_with(setting, f"{mine}:{function}")) is None


def test_the_trial_is_another_process(mine: str) -> None:
    try_custom_functions(Recipe())
    try_custom_functions(recipe_with("filter", f"{mine}:keeps"))


@pytest.mark.parametrize(("function", "code"), [("dies", 7), ("leaves", 0)])
def test_the_trial_tells_of_its_death_whatever_it_answered(
    wrong: str, function: str, code: int
) -> None:
    both = recipe_with(
        "filter", f"{wrong}:two", advantage={"kind": "python", "function": f"{wrong}:{function}"}
    )
    with pytest.raises(UserError) as died:
        try_custom_functions(both)
    place = f"recipe.advantage {wrong}:{function}"
    assert str(died.value).startswith(
        f"{place}: ended the process that tried it (exit code {code})"
    )


def test_a_file_that_ends_the_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys\n\nsys.exit(0)\n")
    sentence = find_failure("recipe.filter", recipe_with("filter", f"{tmp_path}/ends.py:f"))
    assert (
        sentence
        == f"recipe.filter {tmp_path}/ends.py:f: SystemExit: 0 ({tmp_path}/ends.py, line 3)"
    )


def test_the_functions_of_a_file_share_it_and_files_of_equal_stem_do_not(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(
            "def f():\n    return seen\n\n\ndef g():\n    pass\n\n\nseen = []\n"
        )
    f = load_function(f"{tmp_path}/one/mine.py:f")
    g = load_function(f"{tmp_path}/one/mine.py:g")
    other = load_function(f"{tmp_path}/other/mine.py:f")
    assert f.__globals__ is g.__globals__
    assert f() is not other()
    assert pickle.loads(pickle.dumps(f)) is f, "the other file took its module's place"


def test_a_loss_is_not_asked_about_no_token(mine: str) -> None:
    empty = random_inputs(0, num_tokens=0)
    objective(make_loss(recipe_with("loss", f"{mine}:exact").loss), empty)[0].backward()
    assert empty.logprobs.grad is not None, "the rank takes part in the backward pass"


def test_what_a_loss_changes_in_place_nothing_else_reads(mine: str) -> None:
    inputs = random_inputs(3)
    before = {
        field.name: getattr(inputs, field.name).clone() for field in dataclasses.fields(inputs)
    }
    objective(make_loss(recipe_with("loss", f"{mine}:in_place").loss), inputs)[0].backward()
    for name, value in before.items():
        assert torch.equal(getattr(inputs, name), value), name
    expected = torch.where(
        before["logprobs"] > -1.0, -before["advantages"] * before["weights"], 0.0
    )
    torch.testing.assert_close(inputs.logprobs.grad, expected)


def test_cispo_as_a_function_of_ones_own_has_the_same_value_and_gradient(mine: str) -> None:
    found = []
    for recipe in (Recipe(), recipe_with("loss", f"{mine}:loss")):
        logprobs = torch.tensor([-0.5, -1.0, -2.0, -4.0], dtype=torch.float64, requires_grad=True)
        inputs = LossInputs(
            logprobs=logprobs,
            generator_logprobs=torch.tensor([-0.6, -4.0, -1.0, -4.0], dtype=torch.float64),
            advantages=torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64),
            weights=torch.tensor([0.5, 0.5, 0.25, 0.0], dtype=torch.float64),
            rollout=torch.tensor([0, 0, 1, 1]),
        )
        total, _ = objective(make_loss(recipe.loss), inputs)
        total.backward()
        assert logprobs.grad is not None
        found.append((total.item(), logprobs.grad.tolist()))
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][1] == pytest.approx(found[1][1])
    assert found[1][1][3] == 0.0, "a token without weight has no gradient"


def graded_groups() -> list[RolloutGroup]:
    """Groups whose every rollout has a verdict and ended by itself."""
    groups = make_groups(3)
    for group in groups:
        for rollout in group.rollouts:
            rollout.grading_status = GradingStatus.OK if rollout.reward > 0 else GradingStatus.WRONG
    return groups


def numbers(recipe: Recipe) -> list[tuple[int, float]]:
    return [
        (len(one.token_ids), one.advantage) for one in assemble(graded_groups(), recipe).sequences
    ]


def test_advantage_and_filter_of_ones_own_equal_the_shipped_ones_that_they_repeat(
    mine: str,
) -> None:
    shipped = Recipe(advantage_normalisation="none")
    own = recipe_with(
        "advantage",
        f"{mine}:advantage",
        filter={"kind": "python", "function": f"{mine}:keeps"},
        zero_variance_filter=False,
    )
    assert len(numbers(shipped)) > 0
    assert [length for length, _ in numbers(own)] == [length for length, _ in numbers(shipped)]
    assert [a for _, a in numbers(own)] == pytest.approx([a for _, a in numbers(shipped)])


def test_a_filter_drops_the_whole_group(tmp_path: Path) -> None:
    (tmp_path / "drops.py").write_text(
        "def first(group):\n    return bool(group.rewards[0] == 1)\n"
    )
    groups = graded_groups()
    kept = assemble(groups, recipe_with("filter", f"{tmp_path}/drops.py:first")).kept_groups
    assert kept == {group.sequence for group in groups if group.rollouts[0].reward == 1}


def test_a_length_penalty_is_added_to_the_reward(mine: str) -> None:
    recipe = recipe_with(
        "length_control",
        f"{mine}:penalty",
        advantage_normalisation="none",
        max_completion_tokens=64,
    )
    for group in graded_groups():
        shaped = np.array(
            [r.reward - 0.5 * max(0, r.num_tokens - 10) / 64 * r.reward for r in group.rollouts]
        )
        found = [one.advantage for one in assemble([group], recipe).sequences]
        assert found == pytest.approx((shaped - shaped.mean()).tolist())


def test_a_curriculum_never_draws_what_has_weight_0_and_says_if_that_is_all(mine: str) -> None:
    ids = ["a", "never", "b"]
    own = recipe_with("curriculum", f"{mine}:weight").curriculum
    curriculum = Curriculum(ids, seed=0, custom_function=own)
    drawn = [curriculum.draw() for _ in range(40)]
    assert set(drawn) == {"a", "b"}
    assert drawn.count("a") == 20, "each once an epoch"
    resumed = Curriculum(ids, seed=0, custom_function=own)
    resumed.restore(json.loads(json.dumps(curriculum.state())))
    assert [resumed.draw() for _ in range(9)] == [curriculum.draw() for _ in range(9)]
    nothing = Curriculum(
        ids, seed=0, custom_function=recipe_with("curriculum", f"{mine}:nothing").curriculum
    )
    with pytest.raises(
        UserError, match=r"gives the last 3 prompts weights of 0 at most, so none is drawn"
    ):
        nothing.draw()
    hardly = Curriculum(
        ids, seed=0, custom_function=recipe_with("curriculum", f"{mine}:hardly").curriculum
    )
    with pytest.raises(
        UserError, match=r"gives the last 3 prompts weights of 1e-09 at most, so none is drawn"
    ):
        hardly.draw()


def test_an_error_in_the_run_is_one_sentence(wrong: str) -> None:
    part = recipe_with("curriculum", f"{wrong}:divides").curriculum
    assert part is not None
    with pytest.raises(
        UserError, match=r"^recipe.curriculum .*:divides: ZeroDivisionError: .*wrong.py, line 24\)$"
    ):
        custom_weight(part, PromptRecord("a", 0, 0.0, 0, 0))


def test_a_trainer_that_starts_loads_all_parts(mine: str) -> None:
    load_custom_functions(recipe_with("filter", f"{mine}:keeps"))
    with pytest.raises(
        UserError,
        match=r"^recipe.filter .*absent.py:f: there is no file /.*absent.py; correct the path",
    ):
        load_custom_functions(recipe_with("filter", mine.replace("mine", "absent") + ":f"))


def test_a_file_with_another_digest_is_refused(mine: str) -> None:
    recipe = with_digests(recipe_with("filter", f"{mine}:keeps"))
    assert recipe.filter is not None
    assert recipe.filter.digest == file_digest(f"{mine}:keeps")
    Path(mine).write_text(RIGHT + "\n# changed")
    assert with_digests(recipe) == recipe, "a digest that is given stays"
    with pytest.raises(
        UserError,
        match=r"^recipe.filter .*: the file's digest is .* restore the file, or remove digest",
    ):
        CustomFunctionCaller("recipe.filter", recipe.filter).call(None)


def test_a_start_fills_in_the_digest_and_the_runs_folder_names_it(
    mine: str, tmp_path: Path
) -> None:
    part = {"kind": "python", "function": f"{mine}:keeps"}
    settings = {
        "run": "r",
        "folder": str(tmp_path),
        "model": {"path": "m"},
        "recipe": {"filter": part},
    }
    before = filled_in(parse_run_config(settings, source="test"))
    write_resolved(before, tmp_path / "run.json")
    named = json.loads((tmp_path / "run.json").read_text())["recipe"]["filter"]
    assert named == part | {"digest": hashlib.sha256(RIGHT.encode()).hexdigest()}
    assert load_run_config(tmp_path / "run.json").recipe == before.recipe
    Path(mine).write_text(RIGHT + "\n# changed")
    after = filled_in(parse_run_config(settings, source="test"))
    assert [one.field for one in differences(before.recipe, after.recipe)] == ["filter.digest"], (
        "a resumed run says so"
    )


def test_an_entry_point_that_is_not_installed_is_named() -> None:
    part = recipe_with("filter", "no_such_part").filter
    assert part is not None
    with pytest.raises(
        UserError,
        match=(
            r"no installed package has the entry point 'no_such_part' in the group "
            r"rollcast.parts"
        ),
    ):
        CustomFunctionCaller("recipe.filter", part).call(None)


def test_a_filter_that_is_no_python_part_is_refused() -> None:
    with pytest.raises(ValueError, match="function"):
        Recipe.model_validate({"filter": {"kind": "python", "function": "./mine"}})
