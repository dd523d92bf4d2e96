"""The language-model head: log-probabilities of given tokens without the [T, V] tensor of their
logits.

T tokens, V entries of the vocabulary, H hidden size. At most `chunk_tokens` rows of logits exist
together; the backward pass computes them again.

FP32 head (arXiv 2510.13786, section 3.2): operands in the model's precision, products accumulated
and returned in float32, the same definition as the generators'. On CUDA that is one matrix product
with a float32 output, on CPU the operands are widened first: the same number up to the order of
summation. The steps after the product (cap, scale) use the product's precision, as in vLLM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "model"]


@dataclass(frozen=True, slots=True)
class LogitShape:
    """Logits of the products u = W h: z = scale * cap * tanh(u / cap)."""

    cap: float | None = None
    """Gemma's `final_logit_softcapping`. None = no cap: z = scale * u."""
    scale: float = 1.0
    """1 / `logits_scaling` of Granite, `logit_scale` of Cohere."""

    def apply_(self, products: Tensor) -> Tensor:
        """Turn products into logits, in place."""
        if self.cap is not None:
            products.div_(self.cap).tanh_().mul_(self.cap)
        return products if self.scale == 1.0 else products.mul_(self.scale)

    def cap_slope(self, logits: Tensor) -> Tensor | None:
        """d tanh(x) / d x at each logit's x = u / cap; None without a cap."""
        return None if self.cap is None else 1 - (logits / (self.scale * self.cap)).square_()


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """Settings of a head's computation."""

    precision: Precision
    shape: LogitShape
    temperature: float
    """The logits are divided by it."""
    chunk_tokens: int
    compiler: str | None
    """torch.compile's backend for everything between the matrix products. None = it is not
    compiled."""

    def between_products(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as this head calls it."""
        return function if self.compiler is None else _compile(function, self.compiler)


class Head(nn.Module):
    """Replaces a causal LM's output projection; `weight` [V, H] stays the same parameter, tied or
    not.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        *,
        precision: Precision,
        shape: LogitShape = LogitShape(),
        temperature: float = 1.0,
        chunk_tokens: int = 1_024,
        compiler: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.settings = HeadSettings(precision, shape, temperature, chunk_tokens, compiler)

    def forward(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (log pi(target_t) [T], entropy_t [T] in nats) of softmax(logits / temperature),
        both with gradient.

        `hidden` [T, H]; `targets` [T] int64. Results are float32 (float64 for a float64 model).
        """
        logprobs, entropy = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden, self.weight, targets, self.settings
        )
        return logprobs, entropy


class _ChunkedLogprobs(torch.autograd.Function):
    """With p = softmax(z / temperature):  d log p_y / d z = (onehot(y) - p) / temperature,
    d entropy / d z = -p (log p + entropy) / temperature, which is computed only if a loss uses it.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, settings: HeadSettings
    ) -> tuple[Tensor, Tensor]:
        product = _Product(hidden, weight, settings)
        num_tokens = hidden.shape[0]
        logprobs = torch.empty(num_tokens, dtype=product.wide, device=hidden.device)
        entropy = torch.empty_like(logprobs)
        normaliser = torch.empty_like(logprobs)
        summarise = settings.between_products(_summary)
        for start in range(0, num_tokens, settings.chunk_tokens):
            rows = slice(start, start + settings.chunk_tokens)
            logits = product.logits(rows)
            logprobs[rows], entropy[rows], normaliser[rows] = summarise(
                logits, targets[rows], settings.temperature
            )
        ctx.save_for_backward(hidden, weight, targets, normaliser, entropy)
        ctx.settings = settings
        # An entropy that no loss uses then has no gradient, and `backward` leaves its term out.
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, normaliser, entropy = ctx.saved_tensors
        settings: HeadSettings = ctx.settings
        grad_logprobs, grad_entropy = gradients
        if grad_logprobs is None:
            grad_logprobs = torch.zeros_like(normaliser)
        product = _Product(hidden, weight, settings)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = None
        if ctx.needs_input_grad[
            1
        ]:  # a frozen head needs none, and it is as large as the head in float32
            grad_weight = torch.zeros(weight.shape, dtype=product.wide, device=weight.device)
        differentiate = settings.between_products(_grad_of_products)
        for start in range(0, hidden.shape[0], settings.chunk_tokens):
            rows = slice(start, start + settings.chunk_tokens)
            grad_products = differentiate(
                product.logits(rows),
                targets[rows],
                normaliser[rows],
                entropy[rows],
                grad_logprobs[rows],
                None if grad_entropy is None else grad_entropy[rows],
                settings.shape,
                settings.temperature,
            )
            product.backward(rows, grad_products, grad_hidden, grad_weight)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None,
            None,
        )


@cache
def _compile(function: Callable[..., Any], compiler: str) -> Callable[..., Any]:
    """One compilation for all chunks; the last one's other length is dynamic."""
    return torch.compile(function, backend=compiler, dynamic=True)


def _summary(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return [C] log-probs of the targets, entropies and normalisers of a chunk; overwrites
    `logits` [C, V].
    """
    logits = logits.div_(temperature)
    normaliser = logits.logsumexp(dim=1)
    logprobs = logits.gather(1, targets[:, None])[:, 0] - normaliser
    probabilities = (logits - normaliser[:, None]).exp_()
    # H = log Z - sum_v p_v z_v
    entropy = normaliser - torch.linalg.vecdot(probabilities, logits)
    return logprobs, entropy, normaliser


def _grad_of_products(
    logits: Tensor,
    targets: Tensor,
    normaliser: Tensor,
    entropy: Tensor,
    grad_logprobs: Tensor,
    grad_entropy: Tensor | None,
    shape: LogitShape,
    temperature: float,
) -> Tensor:
    """Return [C, V] the gradient with respect to W h, written over the chunk's `logits`.

    All others are [C].
    """
    factor = (grad_logprobs[:, None] * (shape.scale / temperature)).to(logits.dtype)
    slope = shape.cap_slope(logits)
    own_logprobs = logits.div_(temperature).sub_(normaliser[:, None])
    if grad_entropy is None:
        # -p of d log p_y / d z; onehot(y) is added below.
        grad_products = own_logprobs.exp_().mul_(-factor)
    else:
        entropy_factor = (grad_entropy[:, None] * (shape.scale / temperature)).to(logits.dtype)
        probabilities = own_logprobs.exp()
        # -p ((log p + entropy) grad_entropy + grad_logprobs): both terms have the factor -p.
        grad_products = own_logprobs.add_(entropy[:, None]).mul_(entropy_factor).add_(factor)
        grad_products.mul_(probabilities).neg_()
    grad_products.scatter_add_(1, targets[:, None], factor)
    # Back through the cap, z = cap tanh(u / cap).
    return grad_products if slope is None else grad_products.mul_(slope)


class _Product:
    """z = shape(W h) for rows of h, in the head's precision, and the two gradients of W h."""

    def __init__(self, hidden: Tensor, weight: Tensor, settings: HeadSettings) -> None:
        precision = settings.precision
        self.wide = torch.promote_types(weight.dtype, torch.float32)
        self.fused = precision == "fp32" and weight.is_cuda and weight.dtype != self.wide
        narrow = weight.dtype if self.fused or precision == "model" else self.wide
        self.hidden = hidden.to(narrow)
        self.weight = weight.to(narrow)
        self.shape = settings.shape

    def logits(self, rows: slice) -> Tensor:
        if self.fused:
            products = torch.mm(self.hidden[rows], self.weight.t(), out_dtype=self.wide)
        else:
            products = torch.mm(self.hidden[rows], self.weight.t())
        return self.shape.apply_(products).to(self.wide)

    def backward(
        self, rows: slice, grad_products: Tensor, grad_hidden: Tensor, grad_weight: Tensor | None
    ) -> None:
        narrow = grad_products.to(self.weight.dtype)
        grad_hidden[rows] = torch.mm(narrow, self.weight).to(grad_hidden.dtype)
        if grad_weight is None:
            return
        if self.fused:
            grad_weight += torch.mm(narrow.t(), self.hidden[rows], out_dtype=self.wide)
        else:
            grad_weight += torch.mm(narrow.t(), self.hidden[rows])
