"""`rollcast recipe`, and the recipe files: what ships, what each file says, what sets two recipes
apart.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from rollcast.cli.shipped_recipes import find_recipe, load_shipped_recipes
from rollcast.config.corrections import Corrections, RatioMask, RatioTruncation
from rollcast.config.custom_function import CustomFunction
from rollcast.config.distillation import Distillation
from rollcast.config.episodes import Episodes, TurnCredit
from rollcast.config.recipe import KlPenalty, Optimizer, Recipe
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.local.ablation_parts import PARTS, SWITCHES, apply_change
from rollcast.recipe.learning_rate import scaled_to_batch
from tests.cli.command import rollcast
from tests.cli.leaves import leaves

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "configs" / "recipes"
PUBLISHED = ("scalerl", "deepseek-grpo", "magistral", "minimax", "qwen-dapo")


def test_every_file_of_the_folder_ships_under_the_name_of_its_run() -> None:
    names = [recipe.name for recipe in load_shipped_recipes()]
    assert names[:5] == list(PUBLISHED)
    assert sorted(names) == sorted(path.stem for path in RECIPES.rglob("*.yaml"))
    listed = rollcast("recipe", "list")
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == names
    minimax = next(
        line.split() for line in listed.stdout.splitlines() if line.startswith("minimax")
    )
    assert minimax[1:3] == ["ppo-off-policy", "cispo"]
    assert [
        one["recipe"] for one in json.loads(rollcast("recipe", "list", "--json").stdout)
    ] == names


def test_a_recipe_without_a_part_is_scalerl_with_that_part_changed() -> None:
    scalerl = load_run_config(RECIPES / "scalerl.yaml")
    files = {
        path.stem: load_run_config(path).recipe
        for path in (RECIPES / "leave-one-out").glob("*.yaml")
    }
    expected = {
        f"scalerl-without-{part.name.replace('_', '-')}": apply_change(
            scalerl, part.without(scalerl.recipe, scalerl.tasks), "test"
        ).recipe
        for part in PARTS
        if part.is_in(scalerl.recipe)
    }
    assert files == expected
    assert len(expected) == 8, "the paper's, and none of a user's own"


def test_the_files_say_where_the_paper_says_so() -> None:
    """Each published recipe names every switch that any of them sets, with a note behind it; each
    part's file one.
    """
    told = {name: find_recipe(name) for name in PUBLISHED}
    switches = {
        name for recipe in told.values() for name in recipe.explicit_settings if "." not in name
    }
    assert switches >= set(SWITCHES) & {
        "schedule",
        "loss",
        "aggregation",
        "advantage_normalisation",
        "lm_head",
    }
    for recipe in told.values():
        assert set(recipe.notes) == switches, recipe.name
    for path in (RECIPES / "leave-one-out").glob("*.yaml"):
        assert len(find_recipe(path.stem).notes) == 1, path


def test_show_prints_every_setting_with_its_meaning_and_its_origin() -> None:
    shown = rollcast("recipe", "show", "minimax", "--json")
    assert shown.returncode == 0, shown.stderr
    answer = json.loads(shown.stdout)
    data = yaml.safe_load((RECIPES / "minimax.yaml").read_text())
    by_name = {setting["name"]: setting for setting in answer["settings"]}
    dumped = leaves(Recipe.model_validate(data["recipe"]).model_dump(mode="json"))
    assert {name: setting["value"] for name, setting in by_name.items()} == dumped
    given = leaves(data["recipe"])
    assert {name for name, setting in by_name.items() if setting["from"] == "file"} == set(given)
    assert all(setting["meaning"] for setting in answer["settings"])
    text = rollcast("recipe", "show", "minimax").stdout
    for name, setting in by_name.items():
        assert re.search(
            rf"^{re.escape(name)}: .*\({'the file' if name in given else 'default'}", text, re.M
        ), name
        assert setting["meaning"][:40] in text
    line = next(row for row in text.splitlines() if row.startswith("loss.ratio_max: "))
    assert by_name["loss.kind"]["note"] in line


def test_every_setting_of_a_recipe_has_a_meaning() -> None:
    def check(model: type[BaseModel]) -> None:
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name}"

    for recipe in load_shipped_recipes():
        check(type(recipe.recipe))
        for name in Recipe.model_fields:
            if isinstance(value := getattr(recipe.recipe, name), BaseModel):
                check(type(value))


def test_diff_names_what_differs_and_nothing_else(tmp_path: Path) -> None:
    one, two = (
        leaves(find_recipe(name).recipe.model_dump(mode="json"))
        for name in ("scalerl", "deepseek-grpo")
    )
    answer = json.loads(rollcast("recipe", "diff", "scalerl", "deepseek-grpo", "--json").stdout)
    assert set(answer["settings"]) == {
        name for name in one | two if (name in one, one.get(name)) != (name in two, two.get(name))
    }
    assert answer["settings"]["loss.kind"] == ["cispo", "grpo"]
    shown = rollcast("recipe", "diff", "scalerl", "deepseek-grpo").stdout
    assert [line.split()[0] for line in shown.splitlines()[1:]] == list(answer["settings"])
    assert (
        rollcast("recipe", "diff", "scalerl", "scalerl").stdout
        == "scalerl and scalerl: no setting differs\n"
    )
    mine = tmp_path / "mine.yaml"
    mine.write_text("run: mine\nmodel: {path: m}\nrecipe: {prompts_per_step: 64}\n")
    assert json.loads(rollcast("recipe", "diff", "scalerl", mine, "--json").stdout) == {
        "recipes": ["scalerl", "mine"],
        "settings": {"prompts_per_step": [48, 64]},
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "grpo"), "recipe 'grpo': does not ship; choose one of deepseek-grpo, "),
        (
            ("show", "ScaleR"),
            (
                "recipe 'ScaleR': does not ship; choose scalerl, or what `rollcast recipe list` "
                "shows, or"
            ),
        ),
        (("diff", "scalerl", "absent.yaml"), "run file absent.yaml: cannot be read"),
    ],
)
def test_a_recipe_that_is_not_there_is_one_sentence(
    arguments: tuple[str, ...], sentence: str
) -> None:
    result = rollcast("recipe", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {sentence}")
    assert result.stderr.count("\n") == 1


def documented_rows() -> list[str]:
    """The table of docs/reference/recipes.md as the files of the published recipes have it."""
    recipes = [find_recipe(name) for name in PUBLISHED]
    switches = [name for name in Recipe.model_fields if name in recipes[0].notes]
    rows = [f"| setting | {' | '.join(PUBLISHED)} |", "|---" * (len(PUBLISHED) + 1) + "|"]
    for switch in switches:
        cells = [
            f"{_cell(getattr(recipe.recipe, switch))} ({recipe.notes[switch]})"
            for recipe in recipes
        ]
        rows.append(f"| `{switch}` | {' | '.join(cells)} |")
    return rows


def _cell(value: object) -> str:
    """A switch in few words; texts as long as a phrase are left to the files."""
    if not isinstance(value, BaseModel):
        return {"None": "none", "True": "on", "False": "off"}.get(str(value), str(value))
    kind, *others = value.model_dump(mode="json").items()
    shown = [f"{name} {item}" for name, item in others if not isinstance(item, str)]
    return ", ".join([str(kind[1]), *shown])


def test_the_documentation_says_what_the_files_say() -> None:
    assert "\n".join(documented_rows()) in (ROOT / "docs" / "reference" / "recipes.md").read_text()


def every_switch() -> str:
    text = (ROOT / "docs" / "reference" / "recipes.md").read_text()
    return text[text.index("\n## Every switch\n") :]


def test_the_documentation_has_every_switch_with_its_default() -> None:
    """A row for each setting, of settings with a `kind` one for each kind; the phrase is only
    named.

    Of the losses the table has those that papers name; the generated reference of the settings has
    all.
    """
    cells = [row.split(" | ") for row in every_switch().splitlines() if row.startswith("| `")]
    values = {name: html.unescape(value) for (name, value, *_) in cells}
    expected: dict[str, set[str]] = {}
    for name, info in Recipe.model_fields.items():
        kinds = [model for model in models_in(info.annotation) if "kind" in model.model_fields]
        for model in kinds:
            is_default = isinstance(info.default, model)
            kind = model.model_fields["kind"].default
            row = f"| `{name}: {kind}`{' (default)' * is_default}"
            if name != "loss" or row in values:
                expected[row] = told_values(model)
        if is_custom_function(info.annotation):
            expected[f"| `{name}`"] = {"**none**"} | told_values(CustomFunction)
            del expected[f"| `{name}: python`"]
        elif name == "kl":
            expected[f"| `{name}`"] = {"**none**"} | told_values(KlPenalty)
        elif name == "distillation":
            options = told_values(Distillation)
            expected[f"| `{name}`"] = {"**none**"} | {
                told for told in options if "`teacher`" not in told
            }
        elif name == "episodes":
            budgets = {told for told in told_values(Episodes) if "`credit`" not in told}
            expected[f"| `{name}`"] = budgets | told_values(TurnCredit)
        elif name == "optimizer":
            expected[f"| `{name}`"] = told_values(Optimizer)
        elif name == "corrections":
            expected[f"| `{name}`"] = (
                told_values(Corrections) | told_values(RatioTruncation) | told_values(RatioMask)
            )
        elif not kinds:
            expected[f"| `{name}`"] = {f"**{_written(info.default)}**"}
    assert values.keys() == expected.keys()
    for name, told in expected.items():
        for value in told:
            assert value in values[name], (name, value)


def is_custom_function(annotation: Any) -> bool:
    """Whether the setting is off or a function of the user's own."""
    return models_in(annotation) == [CustomFunction]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The settings that a union names."""
    return [
        found
        for found in (annotation, *get_args(annotation))
        if isinstance(found, type) and issubclass(found, BaseModel)
    ]


def told_values(model: type[BaseModel]) -> set[str]:
    fields = {
        name: info.default
        for name, info in model.model_fields.items()
        if name not in ("kind", "function")
    }
    return {
        f"`{name}`" if name == "phrase" else f"`{name}` **{_written(value)}**"
        for name, value in fields.items()
    }


def _written(value: object) -> str:
    shown = {"None": "none", "True": "on", "False": "off"}.get(str(value), str(value))
    return shown.replace("(", "[").replace(")", "]")


def test_the_documented_ways_to_turn_switches_on_are_run_files() -> None:
    snippets = re.findall(r"```yaml\n(.*?)```", every_switch(), re.S)
    recipes = [
        parse_run_config(
            {"run": "r", "model": {"path": "m"}, **yaml.safe_load(snippet)}, source="docs"
        ).recipe
        for snippet in snippets
    ]
    told = {name for snippet in snippets for name in leaves(yaml.safe_load(snippet)["recipe"])}
    assert {
        "corrections.truncation.over",
        "corrections.mask.ratio_min",
        "scale_by_difficulty",
    } < told
    assert {
        "kl.coefficient",
        "entropy_bonus",
        "unique_prompts",
        "refill_filtered",
        "optimizer.scale_with_batch",
    } < told
    assert {recipe.loss.kind for recipe in recipes} == {"cispo", "gspo", "reinforce", "dapo"}
    assert {recipe.rollout_allocation.kind for recipe in recipes} == {"fixed", "difficulty"}
    assert recipes[0] == find_recipe("scalerl-with-gspo").recipe
    (scaled,) = (scaled_to_batch(recipe) for recipe in recipes if recipe.optimizer.scale_with_batch)
    assert f"{scaled.learning_rate:.1e}".replace("e-0", "e-") in every_switch()


def test_scalerl_with_gspo_differs_in_the_loss_alone() -> None:
    recipe = find_recipe("scalerl-with-gspo").recipe
    assert recipe.loss.kind == "gspo"
    assert recipe.model_copy(update={"loss": Recipe().loss}) == Recipe()


def test_diff_shows_function_and_digest_of_a_part_of_ones_own(tmp_path: Path) -> None:
    names = []
    for number in (1, 2):
        (tmp_path / f"mine{number}.py").write_text(
            f"def f(inputs):\n    return {number} * inputs.logprobs\n"
        )
        file = tmp_path / f"run{number}.yaml"
        loss = {"kind": "python", "function": f"{tmp_path}/mine{number}.py:f"}
        file.write_text(
            yaml.safe_dump({"run": f"r{number}", "model": {"path": "m"}, "recipe": {"loss": loss}})
        )
        names.append(str(file))
    told = json.loads(rollcast("recipe", "diff", *names, "--json").stdout)["settings"]
    digests = [
        hashlib.sha256((tmp_path / f"mine{number}.py").read_bytes()).hexdigest()
        for number in (1, 2)
    ]
    functions = [f"{tmp_path}/mine{number}.py:f" for number in (1, 2)]
    assert told == {"loss.function": functions, "loss.digest": digests}


def test_diff_finds_a_function_next_to_its_run_file_and_says_what_it_cannot_compare(
    tmp_path: Path,
) -> None:
    files = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine.py").write_text(f"def f(inputs):\n    return {number} * inputs.logprobs\n")
        loss = {"kind": "python", "function": "./mine.py:f"}
        files.append(folder / "run.yaml")
        files[-1].write_text(
            yaml.safe_dump({"run": f"r{number}", "model": {"path": "m"}, "recipe": {"loss": loss}})
        )
    told = rollcast("recipe", "diff", *files, "--json")
    digests = [hashlib.sha256(file.with_name("mine.py").read_bytes()).hexdigest() for file in files]
    assert json.loads(told.stdout)["settings"] == {"loss.digest": digests}
    assert told.stderr == ""
    files[1].with_name("mine.py").unlink()
    told = rollcast("recipe", "diff", *files, "--json")
    assert (
        f"{files[1]}: recipe.loss ./mine.py:f cannot be compared: its file is neither"
        in told.stderr
    )
    assert told.stderr.count("cannot be compared") == 1


def test_a_run_file_is_checked_with_its_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(group):\n    return len(group.rewards) / 0\n")
    recipe = {"filter": {"kind": "python", "function": f"{tmp_path}/mine.py:f"}}
    file = tmp_path / "run.yaml"
    file.write_text(
        yaml.safe_dump(
            {"run": "r", "model": {"path": str(tmp_path)}, "budget": {"steps": 1}, "recipe": recipe}
        )
    )
    told = rollcast("config", "check", file)
    assert told.returncode == 2
    sentence = (
        f"recipe.filter {tmp_path}/mine.py:f: ZeroDivisionError: division by zero "
        f"({tmp_path}/mine.py, line 2)"
    )
    assert sentence in told.stderr
