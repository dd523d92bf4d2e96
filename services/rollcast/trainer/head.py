"""The language-model head: log-probabilities of given tokens without the [T, V] tensor of their logits.

T tokens, V entries of the vocabulary, H hidden size. At most `chunk_tokens` rows of logits exist at once; the backward
pass computes them again.

FP32 head (arXiv 2510.13786, section 3.2): operands in the model's precision, products accumulated and returned in
float32, the same definition as the generators'. On CUDA that is one matrix product with a float32 output, on CPU the
operands are widened first: the same number up to the order of summation.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "model"]


class Head(nn.Module):
    """Replaces a causal LM's output projection; `weight` [V, H] stays the same parameter, tied or not."""

    def __init__(
        self, weight: nn.Parameter, *, precision: Precision, temperature: float = 1.0, chunk_tokens: int = 1_024
    ) -> None:
        super().__init__()
        self.weight = weight
        self.precision = precision
        self.temperature = temperature
        self.chunk_tokens = chunk_tokens

    def forward(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (log pi(target_t) [T], entropy_t [T] in nats, no gradient) of softmax(logits / temperature).

        `hidden` [T, H]; `targets` [T] int64. Results are float32 (float64 for a float64 model).
        """
        logprobs, entropy = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden, self.weight, targets, self.precision, self.temperature, self.chunk_tokens
        )
        return logprobs, entropy


class _ChunkedLogprobs(torch.autograd.Function):
    """With p = softmax(z), z = W h / temperature:  d log p_y / d z = onehot(y) - p."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        precision: Precision,
        temperature: float,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        product = _Product(hidden, weight, precision)
        num_tokens = hidden.shape[0]
        logprobs = torch.empty(num_tokens, dtype=product.wide, device=hidden.device)
        entropy, normaliser = torch.empty_like(logprobs), torch.empty_like(logprobs)
        for start in range(0, num_tokens, chunk_tokens):
            rows = slice(start, start + chunk_tokens)
            logits = product.logits(rows).div_(temperature)
            normaliser[rows] = logits.logsumexp(dim=1)
            logprobs[rows] = logits.gather(1, targets[rows, None])[:, 0] - normaliser[rows]
            probabilities = (logits - normaliser[rows, None]).exp_()
            entropy[rows] = normaliser[rows] - torch.linalg.vecdot(probabilities, logits)
        ctx.save_for_backward(hidden, weight, targets, normaliser)
        ctx.settings = (precision, temperature, chunk_tokens)
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_logprobs = gradients[0]
        hidden, weight, targets, normaliser = ctx.saved_tensors
        precision, temperature, chunk_tokens = ctx.settings
        product = _Product(hidden, weight, precision)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros(weight.shape, dtype=product.wide, device=weight.device)
        for start in range(0, hidden.shape[0], chunk_tokens):
            rows = slice(start, start + chunk_tokens)
            scale = (grad_logprobs[rows, None] / temperature).to(product.wide)
            logits = product.logits(rows).div_(temperature)
            grad_logits = logits.sub_(normaliser[rows, None]).exp_().mul_(-scale)
            grad_logits.scatter_add_(1, targets[rows, None], scale)
            product.backward(rows, grad_logits, grad_hidden, grad_weight)
        return grad_hidden, grad_weight.to(weight.dtype), None, None, None, None


class _Product:
    """z = W h for rows of h, in the head's precision, and its two gradients."""

    def __init__(self, hidden: Tensor, weight: Tensor, precision: Precision) -> None:
        self.wide = torch.promote_types(weight.dtype, torch.float32)
        self.fused = precision == "fp32" and weight.is_cuda and weight.dtype != self.wide
        narrow = weight.dtype if self.fused or precision == "model" else self.wide
        self.hidden = hidden.to(narrow)
        self.weight = weight.to(narrow)

    def logits(self, rows: slice) -> Tensor:
        if self.fused:
            return torch.mm(self.hidden[rows], self.weight.t(), out_dtype=self.wide)
        return torch.mm(self.hidden[rows], self.weight.t()).to(self.wide)

    def backward(self, rows: slice, grad_logits: Tensor, grad_hidden: Tensor, grad_weight: Tensor) -> None:
        narrow = grad_logits.to(self.weight.dtype)
        grad_hidden[rows] = torch.mm(narrow, self.weight).to(grad_hidden.dtype)
        if self.fused:
            grad_weight += torch.mm(narrow.t(), self.hidden[rows], out_dtype=self.wide)
        else:
            grad_weight += torch.mm(narrow.t(), self.hidden[rows])
