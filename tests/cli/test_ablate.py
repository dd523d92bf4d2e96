"""`rollcast ablate`: which runs it plans, and what it writes for a cluster."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from rollcast.cli.ablate import choose_variants
from rollcast.cli.main import app
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import plain
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.local.ablation import PlannedRun, plan
from rollcast.local.ablation_parts import PARTS
from rollcast.tasks.prompts import load
from tests.cli.command import rollcast
from tests.cli.leaves import leaves

ROOT = Path(__file__).parents[2]
BASE = ROOT / "configs/ablation.yaml"
SECRET = "hunter-2-secret"


def differences(one: RunConfig, two: RunConfig) -> set[str]:
    a, b = (leaves(plain(config)) for config in (one, two))
    return {name for name in a | b if a.get(name) != b.get(name)}


def test_the_plan_changes_one_part_at_a_time_and_has_every_recipe_before_it_repeats_any(
    tmp_path: Path,
) -> None:
    base = load_run_config(BASE)
    variants = choose_variants(base, "all,fresh_data", None)
    planned = plan(base, variants, num_seeds=2, folder=tmp_path)
    names = [
        "whole",
        *(
            f"without-{part.name.replace('_', '-')}"
            for part in PARTS
            if not part.name.startswith("own_")
        ),
        "without-fresh-data",
    ]
    assert [(item.variant.name, item.config.seed) for item in planned] == [
        (n, s) for s in (0, 1) for n in names
    ]
    assert [item.config.run for item in planned][:2] == [
        "miniature-whole-s0",
        "miniature-without-cispo-s0",
    ]
    touched = {
        item.variant.name: {
            name.split(".")[1] for name in differences(planned[0].config, item.config) - {"run"}
        }
        for item in planned[1 : len(names)]
    }
    assert touched == {
        "without-cispo": {"loss"},
        "without-fp32-head": {"lm_head"},
        "without-prompt-average": {"aggregation"},
        "without-batch-normalisation": {"advantage_normalisation"},
        "without-zero-variance-filter": {"zero_variance_filter"},
        "without-no-positive-resampling": {"no_positive_resampling"},
        "without-interruption": {"length_control"},
        "without-pipeline": {"schedule"},
        "without-fresh-data": {"unique_prompts"},
    }
    by_name = {item.variant.name: item.config.recipe for item in planned}
    assert by_name["without-fresh-data"].unique_prompts == 480 // 4
    penalty = by_name["without-interruption"].length_control
    assert penalty.kind == "penalty"
    assert (penalty.max_tokens, penalty.cache_tokens) == (
        round(14_000 * 56 / 14_336),
        round(2_000 * 56 / 14_336),
    )


def test_parts_of_ones_own_are_left_out_as_others_are(tmp_path: Path) -> None:
    parts = {
        name: {"kind": "python", "function": "./mine.py:f"}
        for name in ("loss", "filter", "length_control")
    }
    base = parse_run_config(
        {"run": "own", "model": {"path": "m"}, "recipe": {**parts, "no_positive_resampling": None}},
        source="test",
    )
    planned = plan(
        base,
        choose_variants(base, "own_loss,own_filter,own_length_control", None),
        num_seeds=1,
        folder=tmp_path,
    )
    recipes = {item.variant.name: item.config.recipe for item in planned}
    assert recipes["without-own-loss"].loss.kind == "cispo"
    assert recipes["without-own-filter"].filter is None
    assert recipes["without-own-length-control"].length_control.kind == "none"
    assert {name: len(recipe.custom_functions) for name, recipe in recipes.items()} == {
        "whole": 3, "without-own-loss": 2, "without-own-filter": 2, "without-own-length-control": 2,
    }  # fmt: skip
    every = [variant.name for variant in choose_variants(base, "all", None)]
    assert "without-own-filter" in every
    assert "without-cispo" not in every
    assert "without-interruption" not in every


def test_the_runs_of_a_set_name_the_digest_of_what_is_ones_own_and_values_files_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def keeps(group):\n    return True\n")
    file = run_file(tmp_path, filter={"kind": "python", "function": f"{mine}:keeps"})
    recipes: list[Recipe] = []

    def run_planned(planned: list[PlannedRun], folder: Path, **_: Any) -> NoReturn:
        recipes.extend(item.config.recipe for item in planned)
        raise SystemExit(0)

    monkeypatch.setattr("rollcast.cli.ablate.run_planned", run_planned)
    arguments = [
        "ablate",
        "--config",
        str(file),
        "--without",
        "cispo",
        "--folder",
        str(tmp_path / "set"),
    ]
    with pytest.raises(SystemExit):
        app(arguments)
    digest = hashlib.sha256(mine.read_bytes()).hexdigest()
    assert [recipe.filter and recipe.filter.digest for recipe in recipes] == [digest, digest]
    values = rollcast(
        "ablate", "--config", file, "--without", "cispo", "--write-values", tmp_path / "values"
    )
    for path in values.stdout.splitlines():
        part = yaml.safe_load(Path(path).read_text())["config"]["recipe"]["filter"]
        assert part.get("digest") is None, "the code is in the cluster's images"


def test_a_whole_recipe_brings_its_switches_and_leaves_batch_budget_and_rate(
    tmp_path: Path,
) -> None:
    base = load_run_config(BASE)
    variants = choose_variants(base, None, "scalerl,qwen-dapo,deepseek-grpo")
    whole, scalerl, dapo, grpo = (
        item.config.recipe for item in plan(base, variants, num_seeds=1, folder=tmp_path)
    )
    assert scalerl == whole  # the base is ScaleRL in miniature, its interruption scaled to its task
    assert (dapo.loss.kind, dapo.schedule.kind, dapo.lm_head) == ("dapo", "ppo-off-policy", "model")
    assert (grpo.loss.kind, grpo.aggregation, grpo.zero_variance_filter) == (
        "grpo",
        "sample",
        False,
    )
    assert grpo.prompts_per_step == whole.prompts_per_step
    assert dapo.prompts_per_step == round(
        whole.prompts_per_step * 80 / 48
    )  # it drops groups of an oversized batch
    for recipe in (dapo, grpo):
        assert recipe.optimizer == whole.optimizer
        assert recipe.max_completion_tokens == whole.max_completion_tokens


def test_the_papers_interruption_is_scaled_where_the_base_has_none(tmp_path: Path) -> None:
    base = load_run_config(ROOT / "configs/demo.yaml")
    (variant,) = choose_variants(base, None, "scalerl")
    control = plan(base, [variant], num_seeds=1, folder=tmp_path)[1].config.recipe.length_control
    assert control.kind == "interruption"
    share = base.recipe.max_completion_tokens / 14_336
    assert control.position == (round(10_000 * share), round(12_000 * share))
    assert control.position[1] + control.answer_tokens <= base.recipe.max_completion_tokens


def run_file(folder: Path, **recipe: Any) -> Path:
    """The miniature under another name, with these settings of its recipe and a model that nothing
    has to train.
    """
    settings = yaml.safe_load(BASE.read_text())
    settings |= {"run": "mine", "model": settings["model"] | {"path": "ours/arithmetic"}}
    settings["recipe"] |= recipe
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def test_a_run_files_recipe_is_brought_and_what_is_left_behind_is_named(tmp_path: Path) -> None:
    control = {
        "kind": "interruption",
        "phrase": "|",
        "end_of_thinking": "|",
        "position": [30, 31],
        "answer_tokens": 9,
    }
    file = run_file(
        tmp_path,
        length_control=control,
        rollout_allocation={"kind": "difficulty", "least": 4, "most": 16},
        unique_prompts=100,
        temperature=0.7,
        prompts_per_step=12,
        optimizer={"learning_rate": 2e-5, "warmup_steps": 10},
    )
    base = load_run_config(BASE)
    whole, mine = (
        item.config
        for item in plan(base, choose_variants(base, None, str(file)), num_seeds=1, folder=tmp_path)
    )
    touched = {".".join(name.split(".")[:2]) for name in differences(whole, mine)}
    brought = ("length_control", "rollout_allocation", "unique_prompts", "temperature")
    assert touched == {"run", *(f"recipe.{name}" for name in brought)}
    theirs = load_run_config(file).recipe
    assert all(getattr(mine.recipe, name) == getattr(theirs, name) for name in brought)
    told = rollcast(
        "ablate", "--config", BASE, "--recipe", file, "--write-values", tmp_path / "v", "--json"
    )
    assert json.loads(told.stdout)["left_behind"] == {
        "mine": {"prompts_per_step": [12, 16], "optimizer.learning_rate": [2e-5, 5e-5]}
    }
    assert told.stderr == (
        "mine: stays as miniature has it: prompts_per_step 16 (not 12), optimizer.learning_rate "
        "5e-05 (not 2e-05)\n"
    )


def test_every_seed_is_measured_on_the_same_prompts(tmp_path: Path) -> None:
    base = load_run_config(BASE)
    planned = plan(base, choose_variants(base, "cispo", None), num_seeds=3, folder=tmp_path)
    asked = [{prompt.id for prompt in load(item.config.tasks).held_out} for item in planned]
    assert {item.config.seed for item in planned} == {0, 1, 2}
    assert len(asked[0]) == 128
    assert all(prompts == asked[0] for prompts in asked)


def test_data_reuse_is_an_axis_of_as_many_points_as_are_asked_for(tmp_path: Path) -> None:
    base = load_run_config(BASE)
    variants = choose_variants(base, "fresh_data:2,fresh-data,fresh_data:8", None)
    planned = plan(base, variants, num_seeds=1, folder=tmp_path)
    assert {item.config.run: item.config.recipe.unique_prompts for item in planned} == {
        "miniature-whole": None,
        "miniature-without-fresh-data-2": 240,
        "miniature-without-fresh-data": 120,
        "miniature-without-fresh-data-8": 60,
    }


@pytest.mark.parametrize(
    ("dtype", "null"), [("float32", {"without-fp32-head", "scalerl"}), ("bfloat16", {"scalerl"})]
)
def test_what_trains_like_the_whole_recipe_is_a_null_control(
    tmp_path: Path, dtype: str, null: set[str]
) -> None:
    base = load_run_config(BASE)
    base = base.model_copy(update={"model": base.model.model_copy(update={"dtype": dtype})})
    planned = plan(
        base, choose_variants(base, "all", "scalerl,minimax"), num_seeds=2, folder=tmp_path
    )
    assert {item.variant.name for item in planned if item.is_null_control} == null


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--without", "fresh_data:1000"),
            "--without fresh_data:1000: 1 in 1000 of the 4000 training prompts makes 4, and a step "
            "takes 16 different ones; train on 16000 or more, or lower recipe.prompts_per_step",
        ),
        (
            ("--without", "fresh_data:1"),
            "--without fresh_data:1: '1' is no number from 2 to 1000; write fresh_data:8",
        ),
        (("--without", "cispo:2"), "--without cispo:2: no such part; choose from cispo, "),
        (
            ("--from-folder", "runs", "--continue"),
            "--from-folder: trains nothing; leave --continue, --folder and ",
        ),
        (("--without", "kl"), "--without kl: no such part; choose from cispo, fp32_head, "),
        (("--without", "interruption"), "--without interruption: demo does not have it"),
        (
            ("--without", "cispo,cispo"),
            "--without, --recipe: name at least one part or recipe, and each once",
        ),
        (("--recipe", "none"), "recipe 'none': does not ship; choose one of deepseek-grpo, "),
        (("--plot", "table.pdf"), "--plot table.pdf: draws .png or .svg"),
        (
            ("--budget", "40"),
            f"--budget 40: {ROOT}/configs/demo.yaml has no budget.device_hours, the compute of one",
        ),
        (("--budget", "0"), "--budget 0: compute must be in (0, "),
        (
            ("--budget", "4", "--steps", "3"),
            "--budget 4: each run ends at budget.device_hours, and the same command goes on; leave",
        ),
        (
            ("--continue", "--without", "cispo"),
            "--continue: {set} holds none of the 2 runs, demo-whole the first of them",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_run(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = rollcast(
        "ablate", "--config", ROOT / "configs/demo.yaml", "--folder", tmp_path / "set", *arguments
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {sentence.replace('{set}', str(tmp_path / 'set'))}")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "set").exists()


def test_values_files_hold_what_is_the_runs_own_and_nothing_that_the_chart_sets(
    tmp_path: Path,
) -> None:
    settings = yaml.safe_load(BASE.read_text())
    settings |= {
        "rpc": {"port": 7431, "token": SECRET},
        "redis": {"host": "redis", "password": SECRET},
        "record": {"every_steps": 5, "on": ["gap"]},
    }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    written = rollcast(
        "ablate",
        "--config",
        file,
        "--without",
        "all",
        "--seeds",
        2,
        "--write-values",
        tmp_path / "v",
    )
    assert written.returncode == 0, written.stderr
    paths = [Path(line) for line in written.stdout.splitlines()]
    told = rollcast(
        "ablate", "--config", file, "--without", "cispo", "--write-values", tmp_path / "w", "--json"
    )
    assert [Path(path).is_file() for path in json.loads(told.stdout)["values"]] == [True, True]
    base = load_run_config(file)
    planned = plan(base, choose_variants(base, "all", None), num_seeds=2, folder=base.folder)
    assert [path.stem for path in paths] == [item.config.run for item in planned]
    for path, item in zip(paths, planned, strict=True):
        text = path.read_text()
        assert SECRET not in text
        values = yaml.safe_load(text)
        assert list(values) == ["config"]
        again = parse_run_config(values["config"], source="values")
        assert differences(again, item.config) == {
            "redis.host",
            "redis.password",
            "rpc.token",
            "forecaster.http_port",
        }
        for name in ("folder", "redis", "rpc", "http", "forecaster", "local"):
            assert name not in values["config"]
        assert not {"http_port", "tensor_parallel", "cpu"} & {
            *values["config"]["generator"],
            *values["config"]["trainer"],
        }
