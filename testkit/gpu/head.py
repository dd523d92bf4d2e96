"""The output head in bfloat16, its products in float32 or in the model's precision, against float64
on the same device.

The reference has the whole [T, V] tensor of logits in float64, of the same operands, and autograd's
gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rollcast.config.services import Trainer
from rollcast.trainer.learner.head import Head, Precision
from rollcast.trainer.learner.ranks import Ranks
from testkit.gpu import card

MAX_LOGPROB_ERROR = 1e-4
"""Nats, of the FP32 head: a ratio to the generators' log-probs must not notice."""
MAX_GRADIENT_ERROR = 1e-2
"""Relative; the gradient's own products have bfloat16 operands."""
WIDTHS = (1_024, 2_048)
VOCAB, TOKENS = 151_936, 1_536
PRECISIONS: tuple[Precision, ...] = ("fp32", "model")


def example(
    width: int, vocab: int, tokens: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states [T, H] and weight [V, H] in bfloat16, targets [T], and the gradient of the
    log-probs [T].
    """
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width, device=device).bfloat16()
    # Standard deviation of logits, as in trained models
    weight = (torch.randn(vocab, width, device=device) * 3.0 / width**0.5).bfloat16()
    return (
        hidden,
        weight,
        torch.randint(vocab, (tokens,), device=device),
        torch.randn(tokens, device=device),
    )


def reference(
    hidden: Tensor, weight: Tensor, targets: Tensor, upstream: Tensor
) -> tuple[Tensor, ...]:
    """Log-probs, entropies and the gradients of hidden states and weight, in float64."""
    hidden, weight = hidden.double().requires_grad_(), weight.double().requires_grad_()
    logprobs = torch.log_softmax(hidden @ weight.t(), dim=1)
    entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(1)
    chosen = logprobs.gather(1, targets[:, None])[:, 0]
    gradients = torch.autograd.grad(chosen, (hidden, weight), upstream.double())
    return chosen.detach(), entropy, *gradients


def relative(computed: Tensor, expected: Tensor) -> float:
    """Norm of the difference over that of the expected value."""
    return float((computed.double() - expected).norm() / expected.norm())


def compare(
    precision: Precision, example: tuple[Tensor, ...], expected: tuple[Tensor, ...]
) -> dict[str, Any]:
    """Errors, and the time of forward and backward together."""
    hidden, weight, targets, upstream = example
    device = hidden.device
    parameter, states = nn.Parameter(weight.clone()), hidden.clone().requires_grad_()
    head = Head(parameter, precision=precision, chunk_tokens=Trainer().logits_chunk_tokens)
    logprobs, entropy = head(states, targets)
    logprobs.backward(upstream)
    assert states.grad is not None
    assert parameter.grad is not None
    logprobs, entropy = logprobs.detach().double(), entropy.detach().double()
    errors = (logprobs - expected[0]).abs()
    figures = {
        "logprob_error_max": float(errors.max()),
        "logprob_error_mean": float(errors.mean()),
        "entropy_error_max": float((entropy - expected[1]).abs().max()),
        "hidden_gradient_error": relative(states.grad, expected[2]),
        "weight_gradient_error": relative(parameter.grad, expected[3]),
    }

    def both_ways() -> None:
        parameter.grad = states.grad = None
        head(states, targets)[0].backward(upstream)

    bytes_before = card.start_counting_memory(device)
    # Repetitions, of which the median counts
    seconds = card.median_seconds(both_ways, device, repeats=5)
    return figures | {
        "milliseconds": round(1e3 * seconds, 3),
        "peak_memory_gib": card.peak_memory_gib(device, bytes_before),
    }


def measure(name: str, ranks: Ranks, *, is_small: bool) -> dict[str, Any]:
    """Rows by width and precision; targets of the FP32 head."""
    widths, vocab, tokens = ((16,), 211, 40) if is_small else (WIDTHS, VOCAB, TOKENS)
    rows: list[dict[str, Any]] = []
    for width in widths:
        inputs = example(width, vocab, tokens, ranks.device)
        expected = reference(*inputs)
        for precision in PRECISIONS:
            row = compare(precision, inputs, expected)
            rows.append({"hidden_size": width, "precision": precision, **row})
    exact = [row for row in rows if row["precision"] == "fp32"]
    gradients = [
        row[f"{operand}_gradient_error"] for row in exact for operand in ("hidden", "weight")
    ]
    return {
        "vocab_size": vocab,
        "tokens": tokens,
        "rows": rows,
        "targets": {
            f"log-probs of the FP32 head within {MAX_LOGPROB_ERROR} nats": all(
                row["logprob_error_max"] <= MAX_LOGPROB_ERROR for row in exact
            ),
            f"its gradients within {MAX_GRADIENT_ERROR}": all(
                error <= MAX_GRADIENT_ERROR for error in gradients
            ),
        },
    }
