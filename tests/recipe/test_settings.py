"""Switches of a recipe that contradict one another are refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recipe.schedule import make_schedule


def parsed(**recipe: Any) -> RunConfig:
    return parse_run_config({"run": "r", "model": {"path": "m"}, "recipe": recipe}, source="test")


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        (
            {"refill_filtered": True, "zero_variance_filter": False},
            "refills what recipe.zero_variance_filter drops",
        ),
        (
            {"rollout_allocation": {"kind": "difficulty", "least": 20}},
            "rollout_allocation does not go with .*_per_prompt = 16, the default: .* 20 to 32",
        ),
        (
            {"rollout_allocation": {"kind": "difficulty", "least": 9, "most": 8}},
            "allocation.least = 9 is wrong: .* most, 8",
        ),
        ({"kl": {"coefficient": 0}}, "recipe.kl.coefficient = 0 is wrong: must be greater than 0"),
        ({"entropy_bonus": -1}, "recipe.entropy_bonus = -1 is wrong"),
        ({"unique_prompts": 0}, "recipe.unique_prompts = 0 is wrong"),
        (
            {"unique_prompts": 47},
            "recipe.unique_prompts = 47 is wrong: is less than recipe.prompts_per_step 48",
        ),
        ({"optimizer": {"betas": [0.9, 1.0]}}, r"recipe.optimizer.betas.1 = 1.0 is wrong"),
        (
            {"length_control": {"kind": "interruption", "phrase": ""}},
            r"recipe.length_control.phrase = '' is wrong: must not be empty",
        ),
        (
            {"length_control": {"kind": "interruption", "end_of_thinking": ""}},
            r"end_of_thinking = '' is wrong",
        ),
        (
            {"length_control": {"kind": "penalty", "max_tokens": 100, "cache_tokens": 101}},
            "recipe.length_control.cache_tokens = 101 is wrong: exceeds max_tokens 100",
        ),
        (
            {"length_control": {"kind": "penalty"}, "max_completion_tokens": 12_000},
            "no completion is that long",
        ),
        (
            {
                "length_control": {
                    "kind": "interruption",
                    "position": [14_335, 14_335],
                    "answer_tokens": 1,
                }
            },
            (
                "answer_tokens 1 it leaves no room for the phrase in recipe.max_completion_tokens "
                "14336"
            ),
        ),
        (
            {"loss": {"kind": "gspo", "clip_low": 3.0}},
            "recipe.loss.clip_low = 3.0 is wrong: must be less than 1",
        ),
        (
            {"loss": {"kind": "dapo", "clip_low": 1.0}},
            "recipe.loss.clip_low = 1.0 is wrong: must be less than 1",
        ),
        (
            {"loss": {"kind": "base", "clip_low": 1.5}},
            "recipe.loss.clip_low = 1.5 is wrong: must be less than 1",
        ),
        (
            {"loss": {"kind": "grpo", "clip": 1.0}},
            "recipe.loss.clip = 1.0 is wrong: must be less than 1",
        ),
        (
            {"loss": {"kind": "reinforce"}},
            (
                "recipe.loss does not go with .*_staleness = 8, the default: .*trains on them; set "
                "max_staleness 0"
            ),
        ),
        (
            {
                "loss": {"kind": "reinforce"},
                "schedule": {"kind": "ppo-off-policy", "max_staleness": 2},
            },
            (
                "recipe.schedule.max_staleness = 2 is wrong: .*ppo-off-policy trains on them; set "
                "max_staleness 1, recipe"
            ),
        ),
        (
            {
                "loss": {"kind": "python", "function": "./mine.py:f"},
                "corrections": {"truncation": {"ratio_max": 3.0}},
            },
            (
                "truncation.ratio_max = 3.0 is wrong: .* whether ./mine.py:f has one is not known; "
                "multiply by the ratio"
            ),
        ),
        ({"optimizer": {"learning_rate": 1.0}}, "recipe.optimizer.learning_rate = 1.0 is wrong"),
    ],
)
def test_contradictions_are_one_sentence(recipe: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        parsed(**recipe)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_is_what_wire_1_can_carry(seed: int) -> None:
    with pytest.raises(UserError, match=f"seed = {seed} is wrong"):
        parse_run_config({"run": "r", "model": {"path": "m"}, "seed": seed}, source="test")


@pytest.mark.parametrize(("kind", "max_staleness"), [("pipeline", 0), ("ppo-off-policy", 1)])
def test_reinforce_goes_with_the_schedules_that_train_on_the_newest_weights_alone(
    kind: str, max_staleness: int
) -> None:
    recipe = parsed(
        loss={"kind": "reinforce"}, schedule={"kind": kind, "max_staleness": max_staleness}
    ).recipe
    assert make_schedule(recipe.schedule, groups_per_step=1).max_staleness == 0


def test_reinforce_with_a_ratio_may_train_on_older_weights() -> None:
    recipe = parsed(
        loss={"kind": "reinforce"}, corrections={"truncation": {"over": "sequence"}}
    ).recipe
    assert recipe.schedule.max_staleness == 8


@pytest.mark.parametrize("kind", ["cispo", "gspo", "dapo", "grpo", "base"])
def test_truncation_on_top_of_a_ratio_is_refused_and_a_mask_is_not(kind: str) -> None:
    with pytest.raises(UserError, match=f"recipe.loss {kind} contains the ratio already") as caught:
        parsed(loss={"kind": kind}, corrections={"truncation": {"ratio_max": 3.0}})
    assert "\n" not in str(caught.value)
    assert parsed(loss={"kind": kind}, corrections={"mask": {}}).recipe.corrections.mask is not None


def test_what_the_study_trains_without_is_off() -> None:
    recipe = parsed().recipe
    assert recipe.kl is None
    assert recipe.entropy_bonus == 0
    assert not recipe.scale_by_difficulty
    assert recipe.corrections.truncation is None
    assert recipe.corrections.mask is None
    assert recipe.unique_prompts is None
    assert not recipe.refill_filtered
    assert not recipe.optimizer.scale_with_batch
    assert recipe.rollout_allocation.kind == "fixed"
