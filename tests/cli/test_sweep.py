"""`rollcast sweep`: the arms that a sweep file makes, its mistakes in one sentence each, and the
answer, page and picture of a sweep.
"""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.cli.sweep.answer import SweepAnswer, sentences, table_of_arms
from rollcast.cli.sweep.arms import PlannedSweep, plan_sweep
from rollcast.cli.sweep.page import make_page
from rollcast.config.errors import UserError
from rollcast.plots.sweep import draw_sweep
from testkit.simulated_arms import SimulatedArms, make_loop, make_terms, plan_arms

RUN_FILE: dict[str, Any] = {
    "run": "small",
    "model": {"path": "Qwen/Qwen3-0.6B"},
    "tasks": {"dataset": {"kind": "arithmetic"}},
    "recipe": {"optimizer": {"learning_rate": 5.0e-5, "warmup_steps": 2}},
    "budget": {"device_hours": 2.0},
    "stop_when": {},
}
SWEEP: dict[str, Any] = {
    "sweep": "tiny",
    "base": "run.yaml",
    "grid": {
        "recipe.optimizer.learning_rate": [1.0e-5, 2.0e-5],
        "recipe.loss": [{"kind": "cispo"}, {"kind": "dapo", "clip_low": 0.2, "clip_high": 0.28}],
    },
    "seeds": 2,
    "budget": {"runs": 2.4},
}


def written(folder: Path, **change: Any) -> Path:
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN_FILE))
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(SWEEP | change, sort_keys=False))
    return path


def test_a_grid_is_every_combination_with_every_seed(tmp_path: Path) -> None:
    sweep = plan_sweep(written(tmp_path))
    arms = [
        f"learning-rate-{rate}-loss-{loss}"
        for rate in ("1e-05", "2e-05")
        for loss in ("cispo", "dapo")
    ]
    assert [item.config.run for item in sweep.planned] == [
        f"tiny-{arm}-s{seed}" for seed in (0, 1) for arm in arms
    ]
    last = sweep.planned[-1].config
    assert last.seed == 1
    assert last.recipe.loss.kind == "dapo"
    assert last.recipe.optimizer.learning_rate == 2e-5
    assert last.recipe.optimizer.warmup_steps == 2, "what the grid does not name stays"
    assert last.folder == Path("runs/tiny").absolute()
    # The sweep ends its runs, not they themselves
    assert last.budget.endless
    assert last.budget.device_hours is None
    assert last.stop_when is None
    assert sweep.terms.target == 2.0
    assert sweep.terms.budget == pytest.approx(4.8)


def test_arms_and_recipes_are_arms_too(tmp_path: Path) -> None:
    arms = [
        {"name": "dotted", "settings": {"recipe.optimizer.learning_rate": 1.0e-6}},
        {"name": "nested", "settings": {"recipe": {"optimizer": {"learning_rate": 1.0e-6}}}},
    ]
    file = written(
        tmp_path,
        grid={},
        arms=arms,
        recipes=["qwen-dapo"],
        seeds=1,
        local={"generators": 2},
        target_device_hours=3.0,
        budget={"device_hours": 7.0},
    )
    sweep = plan_sweep(file)
    dotted, nested, recipe = (item.config for item in sweep.planned)
    assert dotted.recipe == nested.recipe
    assert dotted.recipe.optimizer.learning_rate == 1e-6
    assert recipe.recipe.loss.kind == "dapo"
    assert recipe.local.generators == 2
    assert (sweep.terms.target, sweep.terms.budget) == (3.0, 7.0)
    assert sweep.descriptions["dotted"] == sweep.descriptions["nested"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"budget": {}}, "budget: give either device_hours, or runs"),
        ({"budget": {"runs": 1, "device_hours": 1}}, "budget: give either device_hours, or runs"),
        ({"bugdet": {"runs": 1}}, "bugdet is not a setting; did you mean budget?"),
        ({"grid": {}}, "makes 0 arms"),
        ({"grid": {}, "recipes": ["qwen-dapo"]}, "makes 1 arms"),
        ({"recipes": ["qwen-dap"]}, "recipe 'qwen-dap': does not ship; choose qwen-dapo"),
        ({"grid": {"recipe.optimzer.learning_rate": [1, 2]}}, "recipe.optimzer"),
        ({"grid": {"recipe.optimizer.learning_rate": [1.0e-5, 2.0]}}, "learning_rate = 2.0"),
        ({"grid": {"recipe.prompts_per_step": list(range(51))}}, "makes 102 runs (arms: 51, seeds"),
        ({"grid": {"seed": [1, 2]}}, "seed-1 sets seed, which the sweep sets for each run"),
        ({"arms": [{"name": "a", "settings": {"budget.steps": 9}}]}, "a sets budget, which"),
        ({"arms": [{"name": "a", "settings": {"recipe": {1: 2}}}]}, "recipe.1 is not a setting"),
        (
            {"arms": [{"name": "a", "settings": {"recipe.loss": "x", "recipe.loss.clip_low": 1}}]},
            "a: recipe.loss.clip_low is not a setting",
        ),
        ({"sweep": "t" * 40}, "longer than 18 characters; give its settings under `arms`"),
        (
            {"budget": {"device_hours": 0.1}},
            "0.1 device-hours are less than one slice, 0.1 of 2",
        ),
        ({"grid": {"recipe.prompts_per_step": [8, 8]}}, "prompts-per-step-8 names two arms"),
        ({"slice": 2}, "slice = 2"),
        ({"pause_below": 1}, "pause_below = 1"),
        ({"base": "other.yaml"}, "other.yaml: cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        plan_sweep(written(tmp_path, **change))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_dotted_and_nested_settings_of_one_section_add_up(tmp_path: Path) -> None:
    settings = {
        "recipe.optimizer.learning_rate": 1.0e-6,
        "recipe": {"optimizer": {"warmup_steps": 3}},
    }
    sweep = plan_sweep(written(tmp_path, arms=[{"name": "both", "settings": settings}]))
    (both,) = [item for item in sweep.planned if item.config.run == "tiny-both-s0"]
    optimizer = both.config.recipe.optimizer
    assert (optimizer.learning_rate, optimizer.warmup_steps) == (1e-6, 3)


def test_the_sweep_of_the_guide_and_one_of_three_settings_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "my-run.yaml").write_text(yaml.safe_dump(RUN_FILE))
    guide = Path("docs/how-to/sweep.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "guide.yaml").write_text(guide)
    assert len(plan_sweep(tmp_path / "guide.yaml").planned) == 16
    grid = SWEEP["grid"] | {
        "recipe.optimizer.learning_rate": [8.0e-6, 3.2e-5],
        "recipe.rollouts_per_prompt": [4, 16],
    }
    assert len(plan_sweep(written(tmp_path, sweep="s", grid=grid)).planned) == 16


def test_a_target_is_needed(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN_FILE | {"budget": {"steps": 9}}))
    with pytest.raises(UserError, match=r"run\.yaml has no budget\.device_hours.*or target_dev"):
        plan_sweep(file)


class Cells(HTMLParser):
    """The texts of a page's table, by row; fails at a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "line", "polyline"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("line", "polyline"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_answer_its_page_and_its_picture_say_the_same(tmp_path: Path) -> None:
    arms = SimulatedArms({"low": 0.3, "high": 0.8, "middle": 0.5, "dead": 0.9})
    arms.deaths = {"s-dead": 2}
    loop, _, choices = make_loop(arms, tmp_path, make_terms(4, 0.6))
    loop.run()
    planned = plan_arms(tmp_path, list(arms.ceilings))
    sweep = PlannedSweep("test", tmp_path, planned, loop.terms)
    answer = SweepAnswer(sweep, arms, loop.ledger).make(choices[-1])
    assert answer["chosen"] == "high"
    assert answer["is_over"]
    by_name = {arm["arm"]: arm for arm in answer["arms"]}
    assert answer["arms"][0]["arm"] == "high"
    assert answer["arms"][-1]["arm"] == "dead"
    assert by_name["dead"]["paused"] == "failed: its GPU is gone"
    left_out = "s-dead is left out, since it failed twice: its GPU is gone. If the cause is gone,"
    assert any(sentence.startswith(left_out) for sentence in sentences(answer))
    assert by_name["high"]["level"]["q05"] < 0.8 < by_name["high"]["level"]["q95"] + 0.05
    assert by_name["high"]["asymptote"]["q50"] == pytest.approx(0.8, abs=0.1)
    assert sum(arm["spent"] for arm in answer["arms"]) == pytest.approx(answer["spent"])
    assert answer["saved"] == pytest.approx(answer["all_whole"] - answer["spent"])
    learned = sum(len(rates) for rates in arms.readings.values()) * 0.02
    assert answer["learned"] == pytest.approx(learned)

    words = "\n".join(sentences(answer))
    assert "Use high: it is the best at 1 device-hours with a chance of" in words
    assert f"paused {answer['pause']['count']} times; a pause and a resume take 0.02" in words
    page = Cells()
    page.feed(make_page(answer))
    assert page.open == []
    header, rows = table_of_arms(answer)
    assert page.rows == [header, *rows]
    draw_sweep(answer, tmp_path / "sweep.svg")
    assert "high is the best" in (tmp_path / "sweep.svg").read_text()
