"""Policy losses: the objective of every token, and its weighted mean (arXiv 2510.13786, sections 2, 3.2 and A.2).

A loss maps the tokens of one micro-batch to terms J_t of the objective to maximise; `objective` returns
(sum_t w_t J_t, sum_t w_t) BEFORE any reduction over micro-batches or ranks. The loss to minimise is
-(all-reduced sum) / (all-reduced denominator). w_t comes from `rollcast.recipe.aggregation`, once per batch, so a
prompt group may be split over micro-batches and ranks at will, a rollout may not.

Tokens with weight 0 (the forced phrase, padding) have no effect: their log-probabilities, finite or not, reach neither
value nor gradient.

    rho_t  = pi_train(y_t) / pi_gen(y_t)    numerator from the trainer's kernels, denominator from the generator's
    A_t    = advantage of the token's rollout (`rollcast.recipe.advantages`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rollcast.recipe.ratios import clamped, overflows

if TYPE_CHECKING:
    from rollcast.config import recipe as config


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The completion tokens of one micro-batch, flattened; whole rollouts only."""

    logprobs: Tensor
    """[T] log pi_train of the sampled tokens, float32 or float64, with gradient."""
    generator_logprobs: Tensor
    """[T] log pi_gen as recorded while sampling."""
    advantages: Tensor
    """[T] the advantage of each token's rollout."""
    weights: Tensor
    """[T] w_t >= 0; 0 if the token carries no loss."""
    rollout: Tensor
    """[T] int64 index of each token's rollout within the micro-batch, 0 .. number of rollouts - 1."""


class Loss(Protocol):
    """The objective of each token."""

    def terms(self, inputs: LossInputs) -> Tensor:
        """Return J_t [T], to be maximised; 0 if the weight is 0."""

    def clamped(self, inputs: LossInputs) -> Tensor:
        """Return [T] bool, the tokens whose ratio was clamped because it overflows (`rollcast.recipe.ratios`)."""


def objective(loss: Loss, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Return the scalars (sum_t w_t J_t, sum_t w_t) of this micro-batch; add them up before dividing."""
    return (inputs.weights * loss.terms(inputs)).sum(), inputs.weights.sum()


@dataclass(frozen=True, slots=True)
class Cispo:
    """CISPO, Eq (4): J_t = sg(min(rho_t, ratio_max)) A_t log pi_train(y_t); sg = stop-gradient.

    No token loses its gradient.
    """

    ratio_max: float

    def terms(self, inputs: LossInputs) -> Tensor:
        ratio = _log_ratio(inputs).detach().exp().clamp(max=self.ratio_max)
        return ratio * inputs.advantages * _live(inputs.logprobs, inputs)

    def clamped(self, inputs: LossInputs) -> Tensor:
        """Return no token: a ratio is truncated, however large, and has no gradient of its own."""
        return _no_token(inputs)


@dataclass(frozen=True, slots=True)
class ClippedSurrogate:
    """Eq (3): J_t = min(rho_t A_t, clip(rho_t, 1 - clip_low, 1 + clip_high) A_t).

    With sample aggregation this is Eq (3), the base; with prompt aggregation Eq (8), DAPO. With sample aggregation and
    clip_low = clip_high it is Eq (7), GRPO.
    """

    clip_low: float
    clip_high: float

    def terms(self, inputs: LossInputs) -> Tensor:
        return _live(_clipped(_log_ratio(inputs), inputs.advantages, self.clip_low, self.clip_high), inputs)

    def clamped(self, inputs: LossInputs) -> Tensor:
        return overflows(_log_ratio(inputs), inputs.advantages) & (inputs.weights > 0)


@dataclass(frozen=True, slots=True)
class Gspo:
    """GSPO: Eq (3) with one ratio per rollout, rho_i = (pi_train(y_i) / pi_gen(y_i)) ^ (1 / |y_i|), over loss tokens.

    ScaleRL prints rho_i without the exponent, but its clip scale (3e-3 / 4e-3, A.17.3) only makes sense with it, as in
    the GSPO paper (arXiv 2507.18071); `length_normalised` False is the printed form.
    """

    clip_low: float
    clip_high: float
    length_normalised: bool = True

    def terms(self, inputs: LossInputs) -> Tensor:
        return _live(_clipped(self._log_ratio(inputs), inputs.advantages, self.clip_low, self.clip_high), inputs)

    def clamped(self, inputs: LossInputs) -> Tensor:
        return overflows(self._log_ratio(inputs), inputs.advantages) & (inputs.weights > 0)

    def _log_ratio(self, inputs: LossInputs) -> Tensor:
        """Return [T] log rho_i of each token's rollout."""
        log_ratio = _log_ratio(inputs)
        live = inputs.weights > 0
        num_rollouts = int(inputs.rollout.max()) + 1 if inputs.rollout.numel() else 0
        totals = log_ratio.new_zeros(num_rollouts).index_add(0, inputs.rollout, log_ratio)
        if self.length_normalised:
            lengths = log_ratio.new_zeros(num_rollouts).index_add(0, inputs.rollout, live.to(log_ratio.dtype))
            totals = totals / lengths.clamp(min=1)
        return totals[inputs.rollout]


@dataclass(frozen=True, slots=True)
class Reinforce:
    """REINFORCE: J_t = A_t log pi_train(y_t). No ratio: tokens of older weights bias its gradient. Not in the paper.

    With the leave-one-out baseline in A_t this is RLOO (arXiv 2402.14740).
    """

    def terms(self, inputs: LossInputs) -> Tensor:
        return inputs.advantages * _live(inputs.logprobs, inputs)

    def clamped(self, inputs: LossInputs) -> Tensor:
        return _no_token(inputs)


def make_loss(settings: config.Loss) -> Loss:
    """Return the loss that the recipe names."""
    match settings.kind:
        case "cispo":
            return Cispo(ratio_max=settings.ratio_max)
        case "gspo":
            return Gspo(settings.clip_low, settings.clip_high, length_normalised=settings.length_normalised)
        case "dapo" | "base":
            return ClippedSurrogate(clip_low=settings.clip_low, clip_high=settings.clip_high)
        case "grpo":
            return ClippedSurrogate(clip_low=settings.clip, clip_high=settings.clip)
        case "reinforce":
            return Reinforce()


def _live(values: Tensor, inputs: LossInputs) -> Tensor:
    return torch.where(inputs.weights > 0, values, torch.zeros((), dtype=values.dtype, device=values.device))


def _log_ratio(inputs: LossInputs) -> Tensor:
    """Return log rho_t [T]; 0 if the weight is 0."""
    return _live(inputs.logprobs - inputs.generator_logprobs, inputs)


def _no_token(inputs: LossInputs) -> Tensor:
    return torch.zeros_like(inputs.weights, dtype=torch.bool)


def _clipped(log_ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    ratio = clamped(log_ratio, advantages).exp()
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
