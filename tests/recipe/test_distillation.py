"""The advantage of distillation: its gradient is that of the reverse KL, by finite differences over
a vocabulary.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.losses.clipped_surrogate import BaseLoss, DapoLoss, GrpoLoss
from rollcast.config.losses.gspo import GspoLoss
from rollcast.config.losses.reinforce import ReinforceLoss
from rollcast.config.losses.settings import LossSettings
from rollcast.recipe.distillation import (
    MIN_TEACHER_LOGPROB,
    distillation_advantages,
    token_reverse_kl,
)
from rollcast.recipe.losses.loss import LossInputs, objective
from rollcast.recipe.losses.make import make_loss

VOCABULARY = 50
COEFFICIENT = 0.7
STEP = 1e-5
LOSSES = [
    CispoLoss(),
    GspoLoss(),
    DapoLoss(),
    GrpoLoss(),
    BaseLoss(),
    ReinforceLoss(),
]


def some_logits(seed: int) -> Tensor:
    return torch.randn(
        VOCABULARY, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def gradient_of(loss: LossSettings, logits: Tensor, generator: Tensor, teacher: Tensor) -> Tensor:
    """The exact expectation of the objective's gradient over one token, which `generator` samples:
    all V of them.
    """
    logits = logits.clone().requires_grad_()
    zeros = torch.zeros(VOCABULARY, dtype=torch.float64)
    inputs = LossInputs(
        logprobs=torch.log_softmax(logits, 0),
        generator_logprobs=generator,
        advantages=distillation_advantages(zeros, generator, teacher, COEFFICIENT),
        weights=generator.exp(),
        rollout=torch.arange(VOCABULARY),
    )
    total, _ = objective(make_loss(loss), inputs)
    return torch.autograd.grad(total, logits)[0]


def by_finite_differences(value_of: object, logits: Tensor) -> Tensor:
    assert callable(value_of)
    found = torch.zeros(VOCABULARY, dtype=torch.float64)
    for index in range(VOCABULARY):
        step = torch.zeros(VOCABULARY, dtype=torch.float64)
        step[index] = STEP
        found[index] = (value_of(logits + step) - value_of(logits - step)) / (2 * STEP)
    return found


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_on_policy_its_gradient_is_minus_that_of_the_reverse_kl(loss: LossSettings) -> None:
    logits = some_logits(1)
    teacher = torch.log_softmax(some_logits(2), 0)

    def reverse_kl(values: Tensor) -> float:
        own = torch.log_softmax(values, 0)
        return float((own.exp() * (own - teacher)).sum())

    found = gradient_of(loss, logits, torch.log_softmax(logits, 0), teacher)
    wanted = -COEFFICIENT * by_finite_differences(reverse_kl, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


def test_for_older_weights_the_ratio_corrects_the_sampling_and_the_bracket_stays() -> None:
    logits = some_logits(1)
    generator = torch.log_softmax(logits + 0.1 * some_logits(3), 0)
    teacher = torch.log_softmax(some_logits(2), 0)

    def expected_bracket(values: Tensor) -> float:
        return float((torch.softmax(values, 0) * (generator - teacher)).sum())

    found = gradient_of(CispoLoss(), logits, generator, teacher)
    wanted = -COEFFICIENT * by_finite_differences(expected_bracket, logits)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


def test_numpy_and_torch_say_the_same() -> None:
    rng = np.random.default_rng(4)
    advantages, own, teacher = rng.normal(size=(3, 20))
    found = distillation_advantages(advantages, own, teacher, COEFFICIENT)
    as_tensors = distillation_advantages(
        torch.from_numpy(advantages), torch.from_numpy(own), torch.from_numpy(teacher), COEFFICIENT
    )
    assert found.tolist() == as_tensors.tolist()
    assert found.tolist() == [
        a - COEFFICIENT * (g - t) for a, g, t in zip(advantages, own, teacher, strict=True)
    ]


def test_a_token_that_is_impossible_for_the_teacher_has_a_bound() -> None:
    impossible = np.array([-9999.0, -np.inf, MIN_TEACHER_LOGPROB, -1.0])
    assert token_reverse_kl(np.zeros(4), impossible).tolist() == [104.0, 104.0, 104.0, 1.0]
