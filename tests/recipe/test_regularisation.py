"""KL to a reference and entropy against slow loops and exact sums over a vocabulary."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from rollcast.recipe.regularisation import Estimator, kl_terms


def tokens(seed: int, count: int = 12) -> tuple[list[float], list[float], list[float]]:
    rng = random.Random(seed)
    logprobs = [-rng.expovariate(1.0) for _ in range(count)]
    return (
        logprobs,
        [value + rng.gauss(0, 0.5) for value in logprobs],
        [rng.choice([0.0, 0.3, 1.7]) for _ in logprobs],
    )


ESTIMATORS: tuple[Estimator, ...] = ("k1", "k2", "k3")


def slow_estimate(own: float, reference: float, estimator: Estimator) -> float:
    if estimator == "k1":
        return own - reference
    if estimator == "k2":
        return (own - reference) ** 2 / 2
    ratio = math.exp(reference) / math.exp(own)
    return ratio - 1 - math.log(ratio)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_value_and_gradient_agree_with_a_loop(estimator: Estimator) -> None:
    for seed in range(20):
        logprobs, reference, weights = tokens(seed)
        generator = [value + 0.3 * (-1) ** place for place, value in enumerate(logprobs)]
        own = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
        others = [
            torch.tensor(values, dtype=torch.float64) for values in (generator, reference, weights)
        ]
        found = (others[2] * kl_terms(own, *others, estimator=estimator)).sum()
        ratios = [math.exp(value - old) for value, old in zip(logprobs, generator, strict=True)]
        rows = list(zip(logprobs, reference, weights, ratios, strict=True))
        value = sum(w * ratio * slow_estimate(p, q, estimator) for p, q, w, ratio in rows)
        assert found.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
        (gradient,) = torch.autograd.grad(found, own)
        assert gradient.tolist() == pytest.approx(
            [w * ratio * (p - q) for p, q, w, ratio in rows], rel=1e-9
        )


def enumerated(seed: int, *, staleness: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of a policy over a vocabulary of 50, and log-probs of policy, generator
    and reference.
    """
    torch.manual_seed(seed)
    logits = torch.randn(50, dtype=torch.float64).requires_grad_()
    generator = torch.log_softmax(
        logits.detach() + staleness * torch.randn(50, dtype=torch.float64), 0
    )
    reference = torch.log_softmax(1.3 * torch.randn(50, dtype=torch.float64), 0)
    return logits, torch.log_softmax(logits, 0), generator, reference


@pytest.mark.parametrize("staleness", [0.0, 0.8])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_gradient_is_that_of_the_kl_which_the_penalty_names(
    estimator: Estimator, staleness: float
) -> None:
    """Every token of the vocabulary, weighted by the probability that the generator samples it."""
    for seed in range(5):
        logits, policy, generator, reference = enumerated(seed, staleness=staleness)
        exact = (policy.exp() * (policy - reference)).sum()
        (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
        weights = generator.exp()
        found = (
            weights * kl_terms(policy, generator, reference, weights, estimator=estimator)
        ).sum()
        (gradient,) = torch.autograd.grad(found, logits)
        assert 1 - torch.cosine_similarity(gradient, expected, dim=0).item() < 1e-6
        assert ((gradient - expected).norm() / expected.norm()).item() < 1e-6
        if estimator != "k2":  # unbiased
            assert found.item() == pytest.approx(exact.item(), rel=1e-9)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_tokens_without_weight_reach_neither_value_nor_gradient(garbage: float) -> None:
    own = torch.tensor([-1.0, garbage, -2.0], requires_grad=True)
    generator, reference = torch.tensor([-1.0, 0.0, -2.0]), torch.tensor([-1.5, 0.0, -1.0])
    weights = torch.tensor([1.0, 0.0, 2.0])
    found = (weights * kl_terms(own, generator, reference, weights)).sum()
    found.backward()
    assert found.item() == pytest.approx(
        slow_estimate(-1.0, -1.5, "k3") + 2 * slow_estimate(-2.0, -1.0, "k3")
    )
    assert own.grad is not None
    assert own.grad[1] == 0
    assert own.grad.isfinite().all()


def test_equal_policies_have_no_divergence_and_no_gradient() -> None:
    own = torch.tensor([-1.0, -30.0, -0.001], requires_grad=True)
    found = kl_terms(
        own, torch.tensor([-2.0, -29.0, -0.5]), own.detach().clone(), torch.ones(3)
    ).sum()
    found.backward()
    assert found.item() == 0
    assert own.grad is not None
    assert not own.grad.any()
