"""Ratios that overflow are clamped, and nothing else changes: against decimals of 50 digits and the
plain formula.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rollcast.recipe import regularisation
from rollcast.recipe.losses.cispo import Cispo
from rollcast.recipe.losses.clipped_surrogate import ClippedSurrogate
from rollcast.recipe.losses.gspo import Gspo
from rollcast.recipe.losses.loss import Loss, LossInputs, objective

EXACT = Context(prec=50, Emax=10**6, Emin=-(10**6))
LARGEST = {dtype: Decimal(torch.finfo(dtype).max) for dtype in (torch.float32, torch.float64)}
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}
"""Of exp at such arguments, and of their sums over a rollout."""
LOW, HIGH = 0.2, 0.26

log_ratios = st.one_of(
    st.floats(-800, 800, width=32),
    st.floats(80, 100, width=32),
    st.floats(700, 720, width=32),
    st.floats(-0.5, 0.5, width=32),
    st.sampled_from([1e5, 1e30, -1e30]),
)
LEAST = 2.0**-100
"""Times a weight still a normal float32. A smaller one loses digits in that product, before any
ratio is taken."""
advantages = st.one_of(st.just(0.0), st.floats(LEAST, 4, width=32), st.floats(-4, -LEAST, width=32))
token = st.tuples(log_ratios, advantages, st.sampled_from([0.0, 0.01, 0.25, 1.0]))
dtypes = st.sampled_from([torch.float32, torch.float64])


def inputs_of(
    log_ratio: list[float],
    advantage: list[float],
    weight: list[float],
    rollout: list[int],
    dtype: torch.dtype,
) -> LossInputs:
    return LossInputs(
        logprobs=torch.tensor(log_ratio, dtype=dtype, requires_grad=True),
        generator_logprobs=torch.zeros(len(log_ratio), dtype=dtype),
        advantages=torch.tensor(advantage, dtype=dtype),
        weights=torch.tensor(weight, dtype=dtype),
        rollout=torch.tensor(rollout, dtype=torch.int64),
    )


def exact_token(log_ratio: float, advantage: float) -> tuple[Decimal, Decimal, Decimal]:
    """Term, its derivative by the log-ratio, and the larger of ratio and ratio x |advantage|."""
    ratio, a = EXACT.exp(Decimal(log_ratio)), Decimal(advantage)
    free = EXACT.multiply(ratio, a)
    held = EXACT.multiply(min(max(ratio, Decimal(1 - LOW)), Decimal(1 + HIGH)), a)
    largest = max(ratio, abs(free))
    return min(free, held), free if free <= held else Decimal(0), largest


def unclamped(loss: ClippedSurrogate | Gspo, inputs: LossInputs) -> Tensor:
    """The formula as it stands in the papers, overflow and all."""
    has_loss = inputs.weights > 0
    log_ratio = torch.where(
        has_loss, inputs.logprobs - inputs.generator_logprobs, torch.zeros_like(inputs.weights)
    )
    ratio = log_ratio.exp()
    if isinstance(loss, Gspo):
        number = int(inputs.rollout.max()) + 1
        totals = log_ratio.new_zeros(number).index_add(0, inputs.rollout, log_ratio)
        lengths = (
            log_ratio.new_zeros(number)
            .index_add(0, inputs.rollout, has_loss.to(log_ratio.dtype))
            .clamp(min=1)
        )
        ratio = (totals / lengths if loss.length_normalised else totals).exp()[inputs.rollout]
    terms = torch.minimum(
        ratio * inputs.advantages,
        ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high) * inputs.advantages,
    )
    return torch.where(has_loss, terms, torch.zeros_like(terms))


def value_and_gradient(terms: Tensor, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    value = (inputs.weights * terms).sum()
    (gradient,) = torch.autograd.grad(value, inputs.logprobs)
    return value.detach(), gradient


@example(tokens=[(100.0, 1.0, 1.0)], dtype=torch.float32)
@example(tokens=[(100.0, 0.0, 1.0)], dtype=torch.float32)
@example(tokens=[(100.0, -1.0, 1.0)], dtype=torch.float32)
@example(
    tokens=[(88.0, -4.0, 0.01), (88.72283, -1.0, 1.0), (88.72284, -1.0, 1.0)], dtype=torch.float32
)
@example(tokens=[(709.5, -1.0, 1.0), (709.8, -1.0, 1.0)], dtype=torch.float64)
@given(tokens=st.lists(token, min_size=1, max_size=8), dtype=dtypes)
@settings(max_examples=100)
def test_every_token_is_exact_where_its_ratio_is_a_number_and_finite_elsewhere(
    tokens: list[tuple[float, float, float]], dtype: torch.dtype
) -> None:
    loss = ClippedSurrogate(LOW, HIGH)
    log_ratio, advantage, weight = (list(column) for column in zip(*tokens, strict=True))
    inputs = inputs_of(log_ratio, advantage, weight, list(range(len(tokens))), dtype)
    terms = loss.terms(inputs)
    _, gradient = value_and_gradient(terms, inputs)
    assert terms.isfinite().all()
    assert gradient.isfinite().all()
    clamped = loss.overflowing_tokens(inputs)
    for index, (x, a, w) in enumerate(
        zip(inputs.logprobs.tolist(), advantage, weight, strict=True)
    ):
        if w == 0.0:
            assert (terms[index], gradient[index], clamped[index]) == (0.0, 0.0, False)
            continue
        if abs(x) > 1e4:
            x = 1e4 if x > 0 else -1e4  # as far from every number that counts, and exp is quick
        term, derivative, largest = exact_token(x, a)
        share = largest / LARGEST[dtype]
        if share < Decimal("0.9999"):
            assert not clamped[index]
            near: Any = {"rel": ROUNDING[dtype], "abs": 1e-37}
            assert terms[index].item() == pytest.approx(float(term), **near)
            assert gradient[index].item() == pytest.approx(
                float(derivative) * inputs.weights[index].item(), **near
            )
        elif share > Decimal("1.0001"):
            assert clamped[index]
            assert gradient[index] == 0.0
            if a >= 0:
                assert terms[index].item() == pytest.approx((1 + HIGH) * a)
            else:
                assert terms[index] < -1e18 * abs(a)


LOSSES: dict[str, ClippedSurrogate | Gspo] = {
    "dapo": ClippedSurrogate(LOW, HIGH),
    "gspo": Gspo(3e-3, 4e-3),
    "gspo-printed": Gspo(LOW, HIGH, length_normalised=False),
}
rollouts = st.lists(
    st.tuples(
        advantages,
        st.sampled_from([1.0, 0.1]),
        st.lists(
            st.one_of(st.floats(-5, 5, width=32), st.floats(20, 120, width=32)),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", LOSSES)
@example(rollouts_=[(1.0, 0.1, [25.0] * 4), (-1.0, 0.1, [0.1, -0.2])], dtype=torch.float32)
@example(rollouts_=[(-1.0, 1.0, [22.0] * 4), (-1.0, 1.0, [-0.1])], dtype=torch.float32)
@example(rollouts_=[(1.0, 1.0, [100.0]), (-1.0, 1.0, [0.1])], dtype=torch.float32)
@given(rollouts_=rollouts, dtype=dtypes)
@settings(max_examples=50)
def test_a_batch_is_what_it_was_wherever_that_was_finite(
    name: str, rollouts_: list[tuple[float, float, list[float]]], dtype: torch.dtype
) -> None:
    """Weights as of a rollout's mean: they add up to 1, or to a tenth, over each rollout."""
    rows = [
        (x, a, w / len(values), index)
        for index, (a, w, values) in enumerate(rollouts_)
        for x in values
    ]
    loss = LOSSES[name]
    inputs = inputs_of(*(list(column) for column in zip(*rows, strict=True)), dtype)  # type: ignore[arg-type, call-arg]
    before, slope_before = value_and_gradient(unclamped(loss, inputs), inputs)
    after, slope_after = value_and_gradient(loss.terms(inputs), inputs)
    assert slope_after.isfinite().all()
    assert objective(loss, inputs)[0].item() == after.item()
    if before.isfinite() and slope_before.isfinite().all():
        torch.testing.assert_close(after, before, rtol=1e-6, atol=0.0)
        torch.testing.assert_close(slope_after, slope_before, rtol=2e-6, atol=1e-37)
    overflowing = torch.isinf(unclamped(loss, inputs)) | slope_before.isnan()
    assert (loss.overflowing_tokens(inputs) | ~overflowing).all(), "what was no number is counted"


def test_a_ratio_that_is_not_a_number_stays_one() -> None:
    """A model that is broken must not be trained on as if it were not."""
    inputs = inputs_of([float("nan"), 0.0], [1.0, 1.0], [1.0, 1.0], [0, 1], torch.float32)
    for loss in LOSSES.values():
        value, gradient = value_and_gradient(loss.terms(inputs), inputs)
        assert value.isnan()
        assert gradient[0].isnan()


def test_truncated_ratios_need_no_clamp() -> None:
    loss: Loss = Cispo(5.0)
    inputs = inputs_of([1e4, -1e4], [2.0, 1.0], [1.0, 1.0], [0, 1], torch.float32)
    _, gradient = value_and_gradient(loss.terms(inputs), inputs)
    assert gradient.tolist() == [10.0, 0.0]
    assert not loss.overflowing_tokens(inputs).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_distance_to_a_reference_is_clamped_alike(
    dtype: torch.dtype, estimator: regularisation.Estimator
) -> None:
    """The second token's pi_ref / pi_train overflows, which no gradient needs; the third's pi_train
    / pi_gen does.
    """
    own = torch.tensor([-1.0, -1000.0, -3.0, -3.0], dtype=dtype, requires_grad=True)
    generator = torch.tensor([-1.0, -1000.0, -1003.0, -3.0], dtype=dtype)
    reference, weights = (
        torch.tensor([-2.0, -1.0, 0.0, 0.0], dtype=dtype),
        torch.ones(4, dtype=dtype),
    )
    found = regularisation.kl_terms(own, generator, reference, weights, estimator=estimator)
    (gradient,) = torch.autograd.grad(found.sum(), own)
    assert found.isfinite().all()
    assert regularisation.overflowing_kl_tokens(own, generator, reference, weights).tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert gradient.tolist() == pytest.approx([1.0, -999.0, 0.0, -3.0])
