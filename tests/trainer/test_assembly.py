"""Which rollouts are trained on: truncated and ungraded ones, the length penalty, and what is
exported of them.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from rollcast.cli.shipped_recipes import find_recipe
from rollcast.config.custom_function import CustomFunction
from rollcast.config.function_loading import load_function
from rollcast.config.recipe import LengthPenalty, NoLengthControl, Recipe
from rollcast.recipe.group_signal import MIN_GROUPS_TO_WARN, GroupSignal
from rollcast.rollouts.records import (
    GradingStatus,
    Rollout,
    RolloutGroup,
    StopReason,
    VersionSpan,
)
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble, can_be_trained_on, shaped_reward
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.telemetry import GroupSignals, export_batch_statistics
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_task
from testkit.trainer.states import make_reporter
from tests.trainer.tiny_models import make_config

V = PolicyVersion(1, 0)


def rollout(
    index: int,
    reward: float,
    *,
    length: int = 4,
    stop: StopReason = StopReason.END,
    status: GradingStatus | None = None,
    interrupted: bool = False,
) -> Rollout:
    return Rollout(
        index=index,
        token_ids=np.full(length, index, np.int32),
        logprobs=np.zeros(length, np.float32),
        version_spans=(VersionSpan(V, 0, length),),
        stop_reason=stop,
        reward=reward,
        grading_status=status or (GradingStatus.OK if reward > 0 else GradingStatus.WRONG),
        interrupted=interrupted,
    )


def group(sequence: int, rollouts: list[Rollout]) -> RolloutGroup:
    return make_answer_group(
        make_task(sequence, prompt_token_ids=np.ones(2, np.int32)), rollouts, first_version=V
    )


def trained(groups: list[RolloutGroup], recipe: Recipe) -> list[tuple[int, float]]:
    """Index and advantage of each trained rollout; the token ids are the index."""
    return [
        (int(s.token_ids[0]), round(s.advantage, 4)) for s in assemble(groups, recipe).sequences
    ]


def test_truncated_and_ungraded_rollouts_take_part_in_nothing() -> None:
    groups = [
        group(
            0,
            [
                rollout(0, 1.0),
                rollout(1, 0.0),
                rollout(2, 0.0, stop=StopReason.LENGTH),
                rollout(3, 0.0, status=GradingStatus.TIMEOUT),
                rollout(4, 0.0, status=GradingStatus.ERROR),
            ],
        )
    ]
    plain = Recipe(advantage_normalisation="none")
    assert trained(groups, plain) == [(0, 0.5), (1, -0.5)]
    with_truncated = plain.model_copy(update={"exclude_truncated": False})
    assert trained(groups, with_truncated) == [(0, 0.6667), (1, -0.3333), (2, -0.3333)]


def test_a_group_that_varies_only_by_truncation_is_filtered() -> None:
    groups = [group(0, [rollout(0, 1.0), rollout(1, 1.0), rollout(2, 0.0, stop=StopReason.LENGTH)])]
    assert assemble(groups, Recipe()).kept_groups == frozenset()
    assert assemble(groups, Recipe(exclude_truncated=False)).kept_groups == {0}


TRUNCATED_CASES: list[tuple[list[tuple[float, StopReason]], list[float]]] = [
    # (reward of the verifier, whether the budget ended it) -> reward in training
    ([(1.0, StopReason.LENGTH), (0.0, StopReason.END)], []),
    ([(1.0, StopReason.LENGTH), (0.5, StopReason.LENGTH)], []),
    ([(1.0, StopReason.LENGTH), (1.0, StopReason.END)], [0.0, 1.0]),
    ([(0.5, StopReason.LENGTH), (0.5, StopReason.END)], [0.0, 0.5]),
    ([(1.0, StopReason.LENGTH), (1.0, StopReason.END), (0.0, StopReason.END)], [0.0, 1.0, 0.0]),
    ([(0.0, StopReason.LENGTH), (1.0, StopReason.END)], [0.0, 1.0]),
    (
        [(0.25, StopReason.LENGTH), (0.25, StopReason.END), (1.0, StopReason.LENGTH)],
        [0.0, 0.25, 0.0],
    ),
    ([(1.0, StopReason.END), (1.0, StopReason.END)], []),
    ([(1.0, StopReason.END), (0.0, StopReason.END)], [1.0, 0.0]),
    ([(0.9, StopReason.LENGTH), (0.1, StopReason.END)], [0.0, 0.1]),
]


@pytest.mark.parametrize(("answers", "counted"), TRUNCATED_CASES)
def test_a_truncated_answer_that_matches_is_trained_on_as_wrong(
    answers: list[tuple[float, StopReason]], counted: list[float]
) -> None:
    rollouts = [rollout(index, reward, stop=stop) for index, (reward, stop) in enumerate(answers)]
    recipe = Recipe(advantage_normalisation="none", exclude_truncated=False)
    mean = sum(counted) / max(1, len(counted))
    wanted = [(index, round(reward - mean, 4)) for index, reward in enumerate(counted)]
    assert trained([group(0, rollouts)], recipe) == wanted
    assert can_be_trained_on(group(0, rollouts), recipe, GroupFilter(recipe)) is bool(counted)
    exporter = Exporter("r")
    signals = GroupSignals(recipe, exporter)
    signals.note(group(0, rollouts))
    assert (GroupSignal.USABLE in signals._counts) is bool(counted)


def test_a_truncated_match_is_wrong_before_any_length_penalty(tmp_path: Path) -> None:
    cut = rollout(0, 1.0, length=8, stop=StopReason.LENGTH)
    assert (
        shaped_reward(cut, Recipe(length_control=LengthPenalty(max_tokens=10, cache_tokens=4)))
        == 0.0
    )
    assert shaped_reward(cut, Recipe(length_control=NoLengthControl())) == 0.0
    (tmp_path / "own.py").write_text(
        "def penalty(c):\n    return -0.25 if c.reward == 0 and c.truncated else 0.0\n"
    )
    own = CustomFunction(function=f"{tmp_path}/own.py:penalty")
    assert shaped_reward(cut, Recipe(length_control=own)) == -0.25


def test_the_penalty_is_taken_off_correct_answers_only() -> None:
    recipe = Recipe(length_control=LengthPenalty(max_tokens=10, cache_tokens=4))
    lengths = {
        4: 1.0,
        6: 1.0,
        7: 0.875,
        8: 0.75,
        10: 0.5,
        12: 0.5,
    }  # half of Eq 9: right and wrong are 1 apart, not 2
    assert {n: shaped_reward(rollout(0, 1.0, length=n), recipe) for n in lengths} == lengths
    assert {shaped_reward(rollout(0, 0.0, length=n), recipe) for n in lengths} == {0.0}
    assert (
        shaped_reward(rollout(0, 1.0, length=12), Recipe(length_control=NoLengthControl())) == 1.0
    )


def test_an_answer_in_part_keeps_half_of_its_lead_over_a_wrong_one() -> None:
    recipe = Recipe(length_control=LengthPenalty(max_tokens=10, cache_tokens=4))
    assert {n: shaped_reward(rollout(0, 0.5, length=n), recipe) for n in (4, 8, 12)} == {
        4: 0.5,
        8: 0.375,
        12: 0.25,
    }


@pytest.mark.parametrize("kind", ["config", "docs/reference/recipes.md"])
def test_what_is_said_of_the_longest_right_answer_is_what_it_counts(kind: str) -> None:
    counts = shaped_reward(rollout(0, 1.0, length=14_000), Recipe(length_control=LengthPenalty()))
    text = (
        LengthPenalty.model_json_schema()["properties"]["kind"]["description"]
        if kind == "config"
        else ""
    )
    text = text or (Path(__file__).parents[2] / kind).read_text()
    said = " ".join(text.split())
    assert (
        f"the longest correct answer counts {counts:g}, half-way between right and wrong, as "
        "in the paper"
    ) in said


@pytest.mark.parametrize("name", ["qwen-dapo", "magistral", "scalerl-without-interruption"])
def test_a_group_that_is_all_right_is_filtered_whatever_its_lengths(name: str) -> None:
    recipe = find_recipe(name).recipe
    control = recipe.length_control
    assert isinstance(control, LengthPenalty)
    lengths = [3_000, control.max_tokens - control.cache_tokens + 40, control.max_tokens]
    all_right = group(0, [rollout(i, 1.0, length=length) for i, length in enumerate(lengths * 4)])
    assert len({shaped_reward(one, recipe) for one in all_right.rollouts}) == 3
    assert trained([all_right], recipe) == []
    mixed = group(1, [*all_right.rollouts[:3], rollout(3, 0.0, length=3_000)])
    batch = assemble([all_right, mixed], recipe)
    assert batch.kept_groups == {1}
    worth = {int(s.token_ids[0]): s.advantage for s in batch.sequences}
    assert worth[0] > worth[1] > worth[2] > worth[3], "of the kept ones the shorter is worth more"


def test_truncation_and_interruption_are_exported_as_shares_of_the_batch() -> None:
    rollouts = [
        rollout(i, 1.0, interrupted=i < 3, stop=StopReason.LENGTH if i == 7 else StopReason.END)
        for i in range(8)
    ]
    statistics = export_batch_statistics(
        exporter := Exporter("r"), [group(0, rollouts[:4]), group(1, rollouts[4:])]
    )
    assert statistics["interrupted_ratio"] == 3 / 8
    assert statistics["truncation_ratio"] == 1 / 8
    text = exporter.render().decode()
    assert 'rollcast_interrupted_ratio{run="r"} 0.375' in text
    assert 'rollcast_truncation_ratio{run="r"} 0.125' in text


def test_clamped_ratios_are_exported_and_written_down(tmp_path: Path) -> None:
    config, exporter = make_config(tmp_path, tmp_path), Exporter("r")
    config.run_folder.mkdir()
    reporter = make_reporter(config.run_folder, exporter)
    for clamped in (3, 4):
        stats = UpdateStats(
            True, 0.1, 1.0, 0.0, 0.0, 0.0, 1.0, 9, 9, 1, 0.001, clamped_ratios=clamped
        )
        reporter.step(stats, 0.0)
    assert 'rollcast_clamped_ratios_total{run="r"} 7.0' in exporter.render().decode()
    written = (config.run_folder / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["clamped_ratios"] for line in written] == [3, 4]


def test_ratios_are_exported_and_written_down(tmp_path: Path) -> None:
    config, exporter = make_config(tmp_path, tmp_path), Exporter("r")
    config.run_folder.mkdir()
    ratios: dict[str, Any] = {
        "ratios_masked": 0.5,
        "effective_sample_share": 0.75,
        "generator_kl": 0.03125,
    }
    clipped: dict[str, Any] = {"ratios_clipped_low": 0.125, "ratios_clipped_high": 0.25}
    without = UpdateStats(True, 0.1, 1.0, 0.0, 0.0, 0.0, 1.0, 9, 9, 1, 0.001)
    stats = dataclasses.replace(without, **ratios, **clipped)
    make_reporter(config.run_folder, exporter).step(stats, 0.0)
    text = exporter.render().decode()
    for series in (
        'ratios_cut_share{run="r",side="low"} 0.125',
        'ratios_cut_share{run="r",side="high"} 0.25',
        'ratios_masked_share{run="r"} 0.5',
        'effective_sample_share{run="r"} 0.75',
        'generator_kl{run="r"} 0.03125',
    ):
        assert f"rollcast_{series}" in text
    (line,) = (config.run_folder / "steps.jsonl").read_text().splitlines()
    written = ratios | {"ratios_cut_low": 0.125, "ratios_cut_high": 0.25}
    assert written.items() <= json.loads(line).items()


def test_shares_that_are_not_known_are_no_series(tmp_path: Path) -> None:
    config, exporter = make_config(tmp_path, tmp_path), Exporter("r")
    config.run_folder.mkdir()
    stats = UpdateStats(
        True,
        0.1,
        1.0,
        0.0,
        0.0,
        0.0,
        1.0,
        9,
        9,
        1,
        0.001,
        ratios_clipped_low=None,
        ratios_clipped_high=None,
    )
    make_reporter(config.run_folder, exporter).step(stats, 0.0)
    assert "rollcast_ratios_cut_share{" not in exporter.render().decode()
    (line,) = (config.run_folder / "steps.jsonl").read_text().splitlines()
    assert json.loads(line).get("ratios_cut_high") is None


def test_coefficients_depend_on_the_prompts_pass_rate_if_the_recipe_says_so() -> None:
    rollouts = [rollout(i, float(i % 4 == 0), length=4) for i in range(8)]
    groups = [group(0, rollouts), group(1, [rollout(0, 1.0), rollout(1, 0.0)])]
    recipe = Recipe(zero_variance_filter=False)
    plain, scaled = (
        assemble(groups, recipe.model_copy(update={"scale_by_difficulty": switch})).sequences
        for switch in (False, True)
    )
    assert {(one.kl_factor, one.entropy_factor) for one in plain} == {(1.0, 1.0)}
    assert [(one.kl_factor, one.entropy_factor) for one in scaled] == [(0.5, 1.5)] * 8 + [
        (1.0, 1.0)
    ] * 2


def test_coefficients_stay_where_a_teacher_alone_judges_and_no_rollout_has_a_verdict() -> None:
    ungraded = [rollout(i, 0.0, status=GradingStatus.ERROR) for i in range(3)]
    groups = [group(0, ungraded), group(1, [*ungraded, rollout(3, 1.0)])]
    teacher = {"teacher": {"kind": "folder", "path": "t"}, "with_reward": False}
    recipe = Recipe.model_validate(
        {"distillation": teacher, "scale_by_difficulty": True, "entropy_bonus": 0.01}
    )
    found = [(one.kl_factor, one.entropy_factor) for one in assemble(groups, recipe).sequences]
    assert found == [(1.0, 1.0)] * 3 + [(2.0, 0.0)] * 4


OWN = """
asked = []


def keeps(group):
    asked.append(group.rewards.tolist())
    return len(asked) % 2 == 1


def drops(group):
    return False


def advantage(batch):
    asked.append("advantage")
    return batch.rewards - batch.rewards.mean()
"""


def test_a_filter_of_ones_own_is_asked_once_a_group_and_an_advantage_only_about_batches(
    tmp_path: Path,
) -> None:
    (tmp_path / "own_once.py").write_text(OWN)
    recipe = own_recipe(tmp_path / "own_once.py", filter="keeps", advantage="advantage")
    asked = load_function(f"{tmp_path}/own_once.py:keeps").__globals__["asked"]
    groups = [group(number, [rollout(0, 1.0), rollout(1, 0.0)]) for number in range(3)]
    group_filter = GroupFilter(recipe)
    for _ in range(2):
        assert [can_be_trained_on(one, recipe, group_filter) for one in groups] == [
            True,
            False,
            True,
        ]
    assert "advantage" not in asked
    assert assemble(groups, recipe, known_filter=group_filter).kept_groups == {0, 2}
    assert [one for one in asked if one != "advantage"] == [[1.0, 0.0]] * 3
    assert asked[-1] == "advantage"


def test_groups_that_a_filter_of_ones_own_drops_are_counted_and_warned_of(tmp_path: Path) -> None:
    (tmp_path / "own_drops.py").write_text(OWN)
    recipe = own_recipe(tmp_path / "own_drops.py", filter="drops")
    exporter = Exporter("r")
    is_wanted = partial(can_be_trained_on, recipe=recipe, group_filter=GroupFilter(recipe))
    signals = GroupSignals(recipe, exporter, is_wanted)
    with capture_logs() as logs:
        for number in range(MIN_GROUPS_TO_WARN):
            signals.note(group(number, [rollout(0, 1.0), rollout(1, 0.0)]))
    assert (
        'rollcast_group_signals_total{run="r",signal="filtered"} 12.0' in exporter.render().decode()
    )
    assert [line["event"] for line in logs] == [
        "none of the first 12 groups can be trained on: 12 with False from recipe.filter; correct "
        "the function of recipe.filter, which drops them, or remove it"
    ]


def own_recipe(file: Path, **functions: str) -> Recipe:
    """With these functions of the file, by their settings."""
    return Recipe.model_validate(
        {
            setting: {"kind": "python", "function": f"{file}:{name}"}
            for setting, name in functions.items()
        }
    )


@pytest.mark.parametrize(("truncated", "warns"), [(1, False), (2, True)])
def test_more_than_a_tenth_of_truncated_rollouts_is_a_warning(
    tmp_path: Path, truncated: int, warns: bool
) -> None:
    reporter = make_reporter(tmp_path, Exporter("r"))
    rollouts = [
        rollout(i, 1.0, stop=StopReason.LENGTH if i < truncated else StopReason.END)
        for i in range(10)
    ]
    with capture_logs() as logs:
        reporter.batch([group(0, rollouts)], [])
    assert any("a tenth of the rollouts is truncated" in line["event"] for line in logs) == warns
