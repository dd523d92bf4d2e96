"""Truncated importance sampling and IcePop's mask against slow loops and finite differences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError

from rollcast.config.corrections import Corrections, RatioMask, RatioTruncation
from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.losses.clipped_surrogate import DapoLoss
from rollcast.config.losses.gspo import GspoLoss
from rollcast.config.losses.reinforce import ReinforceLoss
from rollcast.config.losses.settings import LossSettings
from rollcast.recipe.corrections import correct
from rollcast.recipe.losses.loss import LossInputs, objective
from rollcast.recipe.losses.make import make_loss
from tests.recipe.loss_inputs import random_inputs

LOSSES: tuple[LossSettings, ...] = (
    CispoLoss(),
    GspoLoss(clip_low=0.2, clip_high=0.26),
    DapoLoss(),
    ReinforceLoss(),
)
MASK = RatioMask(ratio_min=0.6, ratio_max=1.5)


def slow_reinforce(
    logprobs: list[float],
    fixed: list[float],
    inputs: LossInputs,
    *,
    bound: float | None,
    over: Literal["token", "sequence"] = "token",
    mask: tuple[float, float] = (0.0, math.inf),
) -> tuple[float, float]:
    """The objective's numerator and denominator; ratios, which have no gradient, are of the
    log-probs `fixed`.
    """
    generator, weights = inputs.generator_logprobs.tolist(), inputs.weights.tolist()
    advantages, rollout = inputs.advantages.tolist(), inputs.rollout.tolist()
    ratios = [math.exp(own - other) for own, other in zip(fixed, generator, strict=True)]
    kept = [w > 0 and mask[0] <= ratio <= mask[1] for w, ratio in zip(weights, ratios, strict=True)]
    total = 0.0
    for t, logprob in enumerate(logprobs):
        if not kept[t]:
            continue
        factor = ratios[t]
        if over == "sequence":
            factor = math.prod(
                ratios[s] for s in range(len(ratios)) if kept[s] and rollout[s] == rollout[t]
            )
        factor = 1.0 if bound is None else min(factor, bound)
        total += weights[t] * factor * advantages[t] * logprob
    return total, sum(weights)


@pytest.mark.parametrize("over", ["token", "sequence"])
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("bound", [None, 1.2])
def test_reinforce_agrees_with_a_loop_and_with_finite_differences(
    over: Literal["token", "sequence"], mask: RatioMask | None, bound: float | None
) -> None:
    truncation = None if bound is None else RatioTruncation(ratio_max=bound, over=over)
    bounds = (0.0, math.inf) if mask is None else (mask.ratio_min, mask.ratio_max)
    for seed in range(10):
        inputs = random_inputs(seed)
        own = inputs.logprobs.tolist()
        found = objective(
            make_loss(ReinforceLoss()),
            correct(Corrections(truncation=truncation, mask=mask), inputs).inputs,
        )[0]
        expected, _ = slow_reinforce(own, own, inputs, bound=bound, over=over, mask=bounds)
        assert found.item() == pytest.approx(expected, rel=1e-12)
        (gradient,) = torch.autograd.grad(found, inputs.logprobs)
        for t in range(len(own)):
            above, below = (
                slow_reinforce(
                    [*own[:t], own[t] + by, *own[t + 1 :]],
                    own,
                    inputs,
                    bound=bound,
                    over=over,
                    mask=bounds,
                )
                for by in (1e-6, -1e-6)
            )
            assert gradient[t].item() == pytest.approx(
                (above[0] - below[0]) / 2e-6, rel=1e-6, abs=1e-9
            )


@pytest.mark.parametrize("settings", LOSSES, ids=lambda settings: settings.kind)
def test_a_masked_token_is_as_one_without_loss_in_every_loss(settings: LossSettings) -> None:
    """Compared with the same tokens, the masked ones removed from the batch by hand."""
    loss = make_loss(settings)
    num_masked = 0
    for seed in range(10):
        inputs = random_inputs(seed)
        corrected = correct(Corrections(mask=MASK), inputs)
        ratios = (inputs.logprobs - inputs.generator_logprobs).exp().tolist()
        expected = [
            weight > 0 and not MASK.ratio_min <= ratio <= MASK.ratio_max
            for weight, ratio in zip(inputs.weights.tolist(), ratios, strict=True)
        ]
        assert corrected.masked.tolist() == expected
        num_masked += sum(expected)
        rest = torch.tensor([not one for one in expected])
        fields = ("logprobs", "generator_logprobs", "advantages", "weights", "rollout")
        without = LossInputs(**{name: getattr(inputs, name)[rest] for name in fields})
        found, wanted = (objective(loss, one)[0] for one in (corrected.inputs, without))
        assert found.item() == pytest.approx(wanted.item(), rel=1e-12)
        gradients = [
            torch.autograd.grad(one, inputs.logprobs, retain_graph=True)[0]
            for one in (found, wanted)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=0.0)
        assert not gradients[0][corrected.masked].any()
    assert num_masked > 10


def test_without_corrections_the_inputs_are_the_same_object() -> None:
    inputs = random_inputs(0)
    corrected = correct(Corrections(), inputs)
    assert corrected.inputs is inputs
    assert not corrected.masked.any()
    assert not corrected.truncated.any()


def test_truncated_and_masked_tokens_are_counted_by_their_ratio() -> None:
    inputs = random_inputs(3)
    log_ratio = torch.linspace(-2, 2, len(inputs.weights), dtype=torch.float64)
    weights = torch.ones_like(log_ratio)
    weights[-1] = 0.0
    inputs = replace(inputs, logprobs=inputs.generator_logprobs + log_ratio, weights=weights)
    corrected = correct(
        Corrections(mask=RatioMask(ratio_max=4.0), truncation=RatioTruncation(ratio_max=2.0)),
        inputs,
    )
    ratios = log_ratio.exp()
    has_loss = weights > 0
    assert torch.equal(corrected.masked, ((ratios < 0.5) | (ratios > 4.0)) & has_loss)
    assert torch.equal(corrected.truncated, (ratios > 2.0) & (ratios <= 4.0) & has_loss)


def test_a_ratio_that_is_not_a_number_is_not_hidden_by_the_mask() -> None:
    inputs = random_inputs(1)
    broken = inputs.logprobs.detach().clone()
    broken[0] = math.nan
    weights = inputs.weights.clone()
    weights[0] = 1.0
    inputs = replace(inputs, logprobs=broken, weights=weights)
    found = objective(
        make_loss(ReinforceLoss()), correct(Corrections(mask=RatioMask()), inputs).inputs
    )[0]
    assert found.isnan()


@pytest.mark.parametrize("over", ["token", "sequence"])
def test_a_ratio_that_overflows_is_truncated_like_any_other(over: Any) -> None:
    inputs = random_inputs(2)
    far = inputs.generator_logprobs.clone()
    far[:] = -1e4
    inputs = replace(inputs, generator_logprobs=far)
    corrected = correct(Corrections(truncation=RatioTruncation(over=over)), inputs)
    assert torch.equal(corrected.inputs.weights, 2.0 * inputs.weights)


@pytest.mark.parametrize("settings", [{"ratio_min": 1.0}, {"ratio_max": 1.0}, {"ratio_min": -0.1}])
def test_a_mask_that_leaves_out_a_ratio_of_1_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RatioMask(**settings)
