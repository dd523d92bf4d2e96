"""A step's report on its ratios, against slow loops, finite differences of the loss, and sums over
a vocabulary.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.losses.clipped_surrogate import BaseLoss, DapoLoss, GrpoLoss
from rollcast.config.losses.gspo import GspoLoss
from rollcast.config.losses.reinforce import ReinforceLoss
from rollcast.config.losses.settings import LossSettings
from rollcast.recipe.losses.loss import find_clipped_tokens
from rollcast.recipe.losses.make import make_loss
from rollcast.recipe.ratios import ratio_sums
from tests.recipe.loss_inputs import random_inputs


def test_sums_of_ratios_agree_with_a_loop() -> None:
    rng = random.Random(4)
    log_ratios = [rng.gauss(0, 0.7) for _ in range(50)]
    found = ratio_sums(torch.tensor(log_ratios, dtype=torch.float64))
    ratios = [math.exp(value) for value in log_ratios]
    assert found.ratio.item() == pytest.approx(sum(ratios))
    assert found.squared_ratio.item() == pytest.approx(sum(ratio * ratio for ratio in ratios))
    assert found.divergence.item() == pytest.approx(
        sum(ratio - 1 - value for ratio, value in zip(ratios, log_ratios, strict=True))
    )


def test_the_divergence_of_the_generators_tokens_is_unbiased() -> None:
    """Its expectation over a vocabulary of 50 is KL(generator || trainer)."""
    torch.manual_seed(1)
    generator, trainer = (
        torch.log_softmax(torch.randn(50, dtype=torch.float64), 0) for _ in range(2)
    )
    expected = sum(
        math.exp(g) * (g - t) for g, t in zip(generator.tolist(), trainer.tolist(), strict=True)
    )
    each = [ratio_sums(log_ratio[None]).divergence.item() for log_ratio in trainer - generator]
    found = sum(math.exp(g) * value for g, value in zip(generator.tolist(), each, strict=True))
    assert found == pytest.approx(expected, rel=1e-12)


def test_ratios_beyond_every_number_are_reported_as_numbers() -> None:
    found = ratio_sums(torch.tensor([1e5, 1e5, -1e5], dtype=torch.float32))
    assert all(math.isfinite(value.item()) for value in found)
    assert math.isfinite(found.ratio.item() ** 2)
    assert ratio_sums(torch.tensor([math.nan])).ratio.isnan()


@pytest.mark.parametrize(
    "settings",
    [GspoLoss(clip_low=0.2, clip_high=0.26), DapoLoss(), GrpoLoss(), BaseLoss()],
    ids=lambda one: one.kind,
)
def test_a_clip_counts_the_tokens_whose_gradient_it_removes(settings: LossSettings) -> None:
    """Those with a loss whose own term does not move with its ratio, by finite differences."""
    loss = make_loss(settings)
    sides = [0, 0]
    for seed in range(10):
        inputs = replace(random_inputs(seed), logprobs=random_inputs(seed).logprobs.detach())
        low, high = find_clipped_tokens(loss, inputs)
        for t in range(len(inputs.weights)):
            moved = inputs.logprobs.clone()
            moved[t] += 1e-6
            has_gradient = bool(
                (loss.terms(replace(inputs, logprobs=moved)) != loss.terms(inputs))[t]
            )
            is_clipped = inputs.weights[t].item() > 0 and not has_gradient
            assert bool(low[t] | high[t]) == is_clipped
            assert not low[t] or inputs.advantages[t] < 0
            assert not high[t] or inputs.advantages[t] > 0
        sides = [sides[0] + int(low.sum()), sides[1] + int(high.sum())]
    assert min(sides) > 3


def test_cispo_counts_clipped_ratios_and_reinforce_none() -> None:
    inputs = random_inputs(5)
    ratios = (inputs.logprobs - inputs.generator_logprobs).exp()
    low, high = find_clipped_tokens(make_loss(CispoLoss(ratio_max=1.1)), inputs)
    assert torch.equal(high, (ratios > 1.1) & (inputs.weights > 0))
    assert high.any()
    assert not low.any()
    _, above_half = find_clipped_tokens(make_loss(CispoLoss(ratio_max=0.5)), inputs)
    assert torch.equal(above_half, (ratios > 0.5) & (inputs.weights > 0)), (
        "a token without weight is not clipped"
    )
    assert not any(side.any() for side in find_clipped_tokens(make_loss(ReinforceLoss()), inputs))
