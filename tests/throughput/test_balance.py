"""Rates of both sides, and idle shares: simulated with the real gate and schedule, compared with a
formula.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.throughput.assumptions import Assumptions
from rollcast.throughput.balance import Balance, predict
from rollcast.throughput.card import card_named, find_card
from rollcast.throughput.ending import grace_seconds, short_grace
from rollcast.throughput.sentences import full_cache
from testkit.published_models import QWEN3_4B, QWEN3_8B, QWEN3_30B_A3B
from testkit.simulation.closed_form import closed_form_step
from tests.memory.plans import plan_of

H100 = card_named("H100")
RECIPE = {"prompts_per_step": 8, "rollouts_per_prompt": 4}


def balance_of(
    model: dict[str, Any] = QWEN3_4B,
    *,
    generators: int = 4,
    ranks: int = 1,
    slots: int = 48,
    **assumed: Any,
) -> Balance:
    trainer = {"activation_checkpointing": True}
    generator = {"slots": slots, "gpu_memory_utilization": 0.78}
    plan = plan_of(model, ranks=ranks, recipe=RECIPE, trainer=trainer, generator=generator)
    return predict(plan, H100, generators, Assumptions(**assumed))


@pytest.mark.parametrize(
    ("generators", "slots", "least", "most"),
    [(1, 48, 0.7, 0.9), (4, 16, 0.4, 0.6), (2, 48, 0.5, 0.6), (4, 48, 0.3, 0.5)],
    ids=["one generator", "few slots", "two generators", "the staleness bound"],
)
def test_the_trainer_waits_as_long_as_by_the_formula(
    generators: int, slots: int, least: float, most: float
) -> None:
    balance = balance_of(generators=generators, slots=slots)
    assert least <= balance.trainer_idle <= most, "else the case is another one"
    step_seconds = closed_form_step(
        balance.trainer.update_seconds,
        balance.sampling_seconds,
        balance.window_seconds,
        runs_ahead=True,
    )
    by_formula = 1 - balance.trainer.update_seconds / step_seconds
    assert balance.trainer_idle == pytest.approx(by_formula, abs=0.1)


def test_one_side_waits_and_the_other_does_not() -> None:
    starved = balance_of(generators=1, slots=16)
    assert starved.generator_idle < 0.1 < 0.5 < starved.trainer_idle
    spare = balance_of(generators=12, slots=16)
    assert spare.trainer_idle < 0.2 < 0.4 < spare.generator_idle
    assert spare.generator_idle == pytest.approx(
        1 - spare.sampling_seconds / spare.step_seconds, abs=0.05
    )


def test_more_slots_than_the_kv_cache_holds_on_average_decode_no_faster_and_are_named() -> None:
    fits = balance_of(QWEN3_8B, slots=64).generator
    over = balance_of(QWEN3_8B, slots=200)
    assert fits.kv_share < 0.9 < 1 < over.generator.kv_share
    assert over.generator.running < 100 < over.generator.claimed
    more = balance_of(QWEN3_8B, slots=240).generator
    assert more.tokens_per_second == pytest.approx(over.generator.tokens_per_second, rel=0.01)
    (said,) = full_cache(over)
    slots = int(said.rpartition("set it to ")[2])
    assert list(full_cache(balance_of(QWEN3_8B, slots=slots))) == []
    assert (
        over.generator.preemption_share
        > 0.9
        > 0.1
        > balance_of(QWEN3_8B, slots=48).generator.preemption_share
    )


def test_more_rollouts_at_once_are_faster_together_and_slower_each() -> None:
    few = balance_of(slots=16).generator
    many = balance_of(slots=64).generator
    assert few.tokens_per_second < many.tokens_per_second
    assert few.longest_seconds < many.longest_seconds


def test_the_chosen_experts_alone_are_computed_but_all_are_read() -> None:
    balance = balance_of(QWEN3_30B_A3B)
    weights = balance.generator.plan.worker.weights
    assert balance.generator.gpu_seconds(1.0) > weights / H100.bandwidth
    per_token = H100.flops * balance.trainer.utilization / balance.trainer.tokens_per_second
    assert 6 * 2.5e9 < per_token < 6 * 6e9, "3 B of 30 B, and attention"


def test_a_teacher_of_the_same_shape_takes_a_third_of_the_policys_passes() -> None:
    plan = plan_of(QWEN3_4B, ranks=1, recipe=RECIPE)
    alone, taught = (
        predict(replace(plan, teacher=teacher), H100, 4, Assumptions()).trainer.tokens_per_second
        for teacher in (None, plan.model)
    )
    assert taught == pytest.approx(alone * 3 / 4)


def test_a_schedule_that_does_not_run_ahead_waits_for_the_longest_rollouts() -> None:
    plan = plan_of(
        QWEN3_4B,
        ranks=1,
        recipe=RECIPE | {"schedule": {"kind": "ppo-off-policy", "max_staleness": 1}},
        generator={"slots": 16, "gpu_memory_utilization": 0.78},
    )
    uneven = predict(plan, H100, 2, Assumptions())
    even = predict(plan, H100, 2, Assumptions(log_length_spread=0.01))
    sums = {}
    for name, balance in (("uneven", uneven), ("even", even)):
        in_turn = sums[name] = closed_form_step(
            balance.trainer.update_seconds,
            balance.sampling_seconds,
            balance.window_seconds,
            runs_ahead=False,
        )
        assert balance.step_seconds > 0.9 * in_turn
        assert balance.trainer_idle == pytest.approx(
            1 - balance.trainer.update_seconds / balance.step_seconds
        )
    assert even.step_seconds < 1.2 * sums["even"], "without a tail a step takes the sum"
    assert uneven.step_seconds > 1.5 * sums["uneven"]


def test_several_ranks_wait_while_a_version_is_sent() -> None:
    several = balance_of(QWEN3_8B, ranks=4, generators=30)
    assert several.trainer.publish_seconds == several.trainer.sending_seconds > 0
    assert balance_of(ranks=1).trainer.publish_seconds == 0


def test_a_shared_gpu_takes_turns() -> None:
    apart = balance_of(generators=1)
    shared = replace(apart, shares_gpu=True)
    assert apart.gpu_idle is None
    assert shared.gpu_idle is not None
    assert shared.step_seconds > max(
        apart.trainer.update_seconds, apart.sampling_seconds * apart.generator.gpu_share
    )
    assert 0 <= shared.gpu_idle < apart.trainer_idle


def test_a_grace_that_is_too_short_is_named_with_one_that_is_not() -> None:
    balance = balance_of(QWEN3_8B, ranks=4)
    needed = grace_seconds(balance)
    checkpoints = 2 * 12 * 8.19e9 / 1e9
    assert needed > checkpoints + balance.trainer.update_seconds
    (said,) = short_grace(balance, needed - 10)
    assert said.endswith(f"set it to {needed}")
    assert list(short_grace(balance, needed)) == []


@pytest.mark.parametrize("mean", [0.0, -1.0, 14_336.0])
def test_a_mean_length_that_cannot_be_is_refused(mean: float) -> None:
    with pytest.raises(UserError, match="--mean-tokens"):
        balance_of(mean_tokens=mean)


def test_a_card_is_known_by_its_name_and_guessed_by_its_memory() -> None:
    assert [find_card(round(size * 1e9)).name for size in (42.9, 80, 85.5, 141, 150)] == [
        "A100-40GB",
        "H100",
        "H100",
        "H200",
        "H200",
    ]
    with pytest.raises(UserError, match=r"--card TPU: .* H100"):
        card_named("TPU")
