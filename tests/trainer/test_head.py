from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from rollcast.trainer.learner.head import Head, LogitShape

PLAIN = LogitShape()


def full_logits(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, shape: LogitShape = PLAIN
) -> tuple[Tensor, Tensor]:
    """The obvious way, with the whole [T, V] tensor."""
    logits = hidden @ weight.t()
    if shape.cap is not None:
        logits = shape.cap * torch.tanh(logits / shape.cap)
    logprobs = torch.log_softmax(shape.scale * logits / temperature, dim=1)
    return logprobs.gather(1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(1)


def example(num_tokens: int, dtype: torch.dtype) -> tuple[Tensor, nn.Parameter, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_tokens)
    hidden = (
        torch.randn(num_tokens, 12, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
    )
    weight = nn.Parameter(torch.randn(37, 12, generator=generator, dtype=torch.float64).to(dtype))
    targets = torch.randint(37, (num_tokens,), generator=generator)
    upstream = torch.randn(num_tokens, generator=generator, dtype=torch.float64)
    return hidden, weight, targets, upstream


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize(("num_tokens", "chunk_tokens"), [(1, 8), (16, 8), (23, 8), (23, 100)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(
    "shape",
    [PLAIN, LogitShape(cap=2.0), LogitShape(scale=0.3), LogitShape(cap=3.0, scale=1.7)],
    ids=str,
)
def test_equals_full_logits(
    dtype: torch.dtype,
    tolerance: float,
    num_tokens: int,
    chunk_tokens: int,
    temperature: float,
    shape: LogitShape,
) -> None:
    hidden, weight, targets, upstream = example(num_tokens, dtype)
    wide_hidden, wide_weight = (t.detach().double().requires_grad_() for t in (hidden, weight))
    expected, expected_entropy = full_logits(wide_hidden, wide_weight, targets, temperature, shape)
    expected.backward(upstream)

    head = Head(
        weight, precision="fp32", shape=shape, temperature=temperature, chunk_tokens=chunk_tokens
    )
    logprobs, entropy = head(hidden, targets)
    logprobs.backward(upstream.to(logprobs.dtype))

    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    assert hidden.grad is not None
    assert weight.grad is not None
    close(logprobs.double(), expected)
    close(entropy.double(), expected_entropy)
    close(hidden.grad.double(), wide_hidden.grad)
    close(weight.grad.double(), wide_weight.grad)


def test_fp32_head_of_a_bfloat16_model_has_float32_products() -> None:
    hidden, weight, targets, _ = example(40, torch.bfloat16)
    exact, _ = full_logits(hidden.double(), weight.double(), targets, 1.0)
    fp32, _ = Head(weight, precision="fp32", chunk_tokens=8)(hidden, targets)
    model, _ = Head(weight, precision="model", chunk_tokens=8)(hidden, targets)
    assert fp32.dtype == model.dtype == torch.float32
    torch.testing.assert_close(fp32.double(), exact, rtol=1e-5, atol=1e-5)
    assert (model.double() - exact).abs().max() > 1e-3


def test_gradients_have_the_parameters_dtype() -> None:
    hidden, weight, targets, _ = example(10, torch.bfloat16)
    logprobs, _ = Head(weight, precision="fp32", chunk_tokens=4)(hidden, targets)
    logprobs.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16


def test_no_tokens_give_zero_gradients() -> None:
    hidden, weight, targets, _ = example(0, torch.float32)
    logprobs, _ = Head(weight, precision="fp32")(hidden, targets)
    logprobs.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
