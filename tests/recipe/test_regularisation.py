"""KL to a reference and entropy against slow loops, exact sums over a vocabulary and finite differences."""

from __future__ import annotations

import math
import random

import pytest
import torch

from rollcast.recipe.regularisation import weighted_entropy, weighted_kl


def tokens(seed: int, count: int = 12) -> tuple[list[float], list[float], list[float]]:
    rng = random.Random(seed)
    logprobs = [-rng.expovariate(1.0) for _ in range(count)]
    return logprobs, [value + rng.gauss(0, 0.5) for value in logprobs], [rng.choice([0.0, 0.3, 1.7]) for _ in logprobs]


def slow_kl(logprobs: list[float], reference: list[float], weights: list[float]) -> float:
    total = 0.0
    for own, other, weight in zip(logprobs, reference, weights, strict=True):
        ratio = math.exp(other) / math.exp(own)
        total += weight * (ratio - 1 - math.log(ratio))
    return total


def test_kl_and_its_gradient_agree_with_a_loop() -> None:
    for seed in range(20):
        logprobs, reference, weights = tokens(seed)
        own = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
        found = weighted_kl(own, *(torch.tensor(values, dtype=torch.float64) for values in (reference, weights)))
        assert found.item() == pytest.approx(slow_kl(logprobs, reference, weights), rel=1e-9, abs=1e-12)
        (gradient,) = torch.autograd.grad(found, own)
        for position in range(len(logprobs)):
            shifted = [
                slow_kl([*logprobs[:position], logprobs[position] + by, *logprobs[position + 1 :]], reference, weights)
                for by in (1e-6, -1e-6)
            ]
            numeric = (shifted[0] - shifted[1]) / 2e-6
            assert gradient[position].item() == pytest.approx(numeric, rel=1e-5, abs=1e-8)


def test_tokens_of_the_policy_itself_estimate_the_kl_divergence_without_bias() -> None:
    """Summed over a whole vocabulary with the policy's probabilities, k3 is KL(policy || reference)."""
    torch.manual_seed(0)
    policy, reference = (torch.log_softmax(torch.randn(50, dtype=torch.float64), 0) for _ in range(2))
    expected = sum(math.exp(p) * (p - q) for p, q in zip(policy.tolist(), reference.tolist(), strict=True))
    assert weighted_kl(policy, reference, policy.exp()).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_tokens_without_weight_reach_neither_value_nor_gradient(garbage: float) -> None:
    own = torch.tensor([-1.0, garbage, -2.0], requires_grad=True)
    found = weighted_kl(own, torch.tensor([-1.5, 0.0, -1.0]), torch.tensor([1.0, 0.0, 2.0]))
    found.backward()
    assert found.item() == pytest.approx(slow_kl([-1.0, -2.0], [-1.5, -1.0], [1.0, 2.0]))
    assert own.grad is not None
    assert own.grad[1] == 0
    assert own.grad.isfinite().all()


def test_equal_policies_have_no_divergence_and_no_gradient() -> None:
    own = torch.tensor([-1.0, -30.0, -0.001], requires_grad=True)
    found = weighted_kl(own, own.detach().clone(), torch.ones(3))
    found.backward()
    assert found.item() == 0
    assert own.grad is not None
    assert not own.grad.any()


def test_entropy_is_weighted_like_the_loss() -> None:
    found = weighted_entropy(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 0.0, 0.25]))
    assert found.item() == 1.5
