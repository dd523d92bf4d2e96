"""Which rollouts are trained on: truncated and ungraded ones, the length penalty, and what is exported of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from rollcast.cli.shipped_recipes import find_recipe
from rollcast.config.recipe import LengthPenalty, NoLengthControl, Recipe
from rollcast.rollouts.records import (
    GradingStatus,
    Rollout,
    RolloutGroup,
    StopReason,
    VersionSpan,
)
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble, shaped_reward
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.telemetry import export_batch
from rollcast.trainer.learner.learner import UpdateStats
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import group_of, make_task
from testkit.trainer.states import make_state
from tests.trainer.tiny_models import make_config

V = PolicyVersion(1, 0)


def make_reporter(folder: Path, exporter: Exporter) -> Reporter:
    """Of a run without prompts."""
    prompts: Any = None
    return Reporter(make_state(folder), exporter, prompts, Recipe(), max_staleness=8, max_bytes=1)


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
    return group_of(make_task(sequence, prompt_token_ids=np.ones(2, np.int32)), rollouts, first_version=V)


def trained(groups: list[RolloutGroup], recipe: Recipe) -> list[tuple[int, float]]:
    """Index and advantage of each trained rollout; the token ids are the index."""
    return [(int(s.token_ids[0]), round(s.advantage, 4)) for s in assemble(groups, recipe).sequences]


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


def test_the_penalty_is_taken_off_correct_answers_only() -> None:
    recipe = Recipe(length_control=LengthPenalty(max_tokens=10, cache_tokens=4))
    lengths = {4: 1.0, 6: 1.0, 7: 0.875, 8: 0.75, 10: 0.5, 12: 0.5}  # half of Eq 9: right and wrong are 1 apart, not 2
    assert {n: shaped_reward(rollout(0, 1.0, length=n), recipe) for n in lengths} == lengths
    assert {shaped_reward(rollout(0, 0.0, length=n), recipe) for n in lengths} == {0.0}
    assert shaped_reward(rollout(0, 1.0, length=12), Recipe(length_control=NoLengthControl())) == 1.0


def test_an_answer_in_part_keeps_half_of_its_lead_over_a_wrong_one() -> None:
    recipe = Recipe(length_control=LengthPenalty(max_tokens=10, cache_tokens=4))
    assert {n: shaped_reward(rollout(0, 0.5, length=n), recipe) for n in (4, 8, 12)} == {4: 0.5, 8: 0.375, 12: 0.25}


@pytest.mark.parametrize("kind", ["config", "docs/reference/recipes.md"])
def test_what_is_said_of_the_longest_right_answer_is_what_it_counts(kind: str) -> None:
    counts = shaped_reward(rollout(0, 1.0, length=14_000), Recipe(length_control=LengthPenalty()))
    text = LengthPenalty.model_json_schema()["properties"]["kind"]["description"] if kind == "config" else ""
    text = text or (Path(__file__).parents[2] / kind).read_text()
    said = " ".join(text.split())
    assert f"the longest correct answer counts {counts:g}, half-way between right and wrong, as in the paper" in said


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
        rollout(i, 1.0, interrupted=i < 3, stop=StopReason.LENGTH if i == 7 else StopReason.END) for i in range(8)
    ]
    statistics = export_batch(exporter := Exporter("r"), [group(0, rollouts[:4]), group(1, rollouts[4:])])
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
        stats = UpdateStats(True, 0.1, 1.0, 0.0, 0.0, 0.0, 1.0, 9, 9, 1, 0.001, clamped_ratios=clamped)
        reporter.step(stats, 0.0)
    assert 'rollcast_clamped_ratios_total{run="r"} 7.0' in exporter.render().decode()
    written = (config.run_folder / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["clamped_ratios"] for line in written] == [3, 4]


@pytest.mark.parametrize(("truncated", "warns"), [(1, False), (2, True)])
def test_more_than_a_tenth_of_truncated_rollouts_is_a_warning(tmp_path: Path, truncated: int, warns: bool) -> None:
    reporter = make_reporter(tmp_path, Exporter("r"))
    rollouts = [rollout(i, 1.0, stop=StopReason.LENGTH if i < truncated else StopReason.END) for i in range(10)]
    with capture_logs() as logs:
        reporter.batch([group(0, rollouts)], [])
    assert any("a tenth of the rollouts is truncated" in line["event"] for line in logs) == warns
